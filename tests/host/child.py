"""A task manager in a process of its own, for tests: `python -m tests.host.child`.

It takes one line of JSON (settings, segments, what to write, what to read), prints its address,
then `{"read": …}` when its readers are through, and at the end of its input how many segments are
home. A reader reports count and checksum of what it read, or its error.
"""

import json
import sys
import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any

from headgate.base.ids import PartitionId
from headgate.base.settings import ExchangeSettings
from headgate.core.egress.partition import PartitionKind
from headgate.core.task.environment import Input, RemoteProducer
from headgate.host.net.exchange import Exchange
from tests.host.rig import SECRET, all_home, consume, eventually, pool_of, produce


def records(number: int | None, size: int) -> Iterator[bytes]:
    """That many records of that size, or endlessly many."""
    for index in count() if number is None else range(number):
        yield index.to_bytes(size, "little")


def checksum(lanes: list[list[bytes]]) -> list[int]:
    return [zlib.crc32(b"".join(lane)) for lane in lanes]


def main() -> None:
    order: dict[str, Any] = json.loads(sys.stdin.readline())
    settings = ExchangeSettings.parse(order["settings"])
    with Exchange(settings, SECRET, segments=order["segments"]) as exchange:
        print(json.dumps({"address": exchange.address}), flush=True)
        writers = [
            produce(
                exchange,
                task["partition"],
                records(task["count"], task["size"]),
                subpartitions=task["lanes"],
                kind=PartitionKind[task["kind"]],
            )
            for task in order["write"]
        ]
        readers = [
            consume(exchange, [channel(task, lane) for lane in task["lanes"]])
            for task in order["read"]
        ]
        report: list[object] = []
        for reader in readers:
            try:
                reader.join(60)
            except Exception as error:
                report.append(f"{type(error).__name__}: {error}")
            else:
                report.append([len(reader.records), checksum(reader.received)])
        print(json.dumps({"read": report}), flush=True)
        sys.stdin.read()  # until the parent has had enough
        for writer in writers:
            if writer.partition.kind is PartitionKind.BLOCKING:
                with exchange.inside():
                    writer.partition.release()
        if order["complete"]:
            eventually(lambda: all_home(exchange), "all segments home", 10)
        print(json.dumps({"home": pool_of(exchange)}), flush=True)


def channel(order: dict[str, Any], lane: int) -> Input:
    host, port = order["address"]
    return Input(PartitionId(order["partition"]), lane, RemoteProducer((host, port)))


if __name__ == "__main__":
    main()
