"""librdkafka's mock cluster in a process of its own, driven by a line of JSON for each command.

The library that confluent-kafka brings along is called through ctypes: topics are made, brokers go
down and come up, leaders change, requests fail. Run by ``MockCluster`` in ``kit.py``.
"""

import ctypes
import glob
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import confluent_kafka

FETCH = 1


def load_library() -> ctypes.CDLL:
    """The librdkafka that the client has loaded, so that there is one of it."""
    folder = os.path.join(os.path.dirname(confluent_kafka.__file__), "..", "confluent_kafka.libs")
    [path] = glob.glob(os.path.join(folder, "librdkafka*"))
    library = ctypes.CDLL(path)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        ("rd_kafka_mock_topic_set_error", None, [pointer, text, number]),
        (
            "rd_kafka_mock_partition_set_leader",
            number,
            [pointer, text, ctypes.c_int32, ctypes.c_int32],
        ),
        (
            "rd_kafka_mock_partition_delete_records",
            number,
            [pointer, text, ctypes.c_int32, ctypes.c_int64],
        ),
        ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
        (
            "rd_kafka_mock_push_request_errors_array",
            None,
            [pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(number)],
        ),
        ("rd_kafka_mock_clear_request_errors", None, [pointer, ctypes.c_int16]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Cluster:
    """The commands; each answers with something that JSON has."""

    def __init__(self, brokers: int) -> None:
        self._library = load_library()
        problem = ctypes.create_string_buffer(512)
        handle = self._library.rd_kafka_new(0, self._library.rd_kafka_conf_new(), problem, 512)
        assert handle, problem.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(handle, brokers)
        self.servers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._producer: Any = None

    def topic(self, name: str, partitions: int) -> int:
        found: int = self._library.rd_kafka_mock_topic_create(
            self._cluster, name.encode(), partitions, 1
        )
        return found

    def produce(self, topic: str, rows: list[list[Any]]) -> int:
        """Rows of partition, key, value, time in ms, headers; returns when all are written."""
        if self._producer is None:
            self._producer = confluent_kafka.Producer(
                {"bootstrap.servers": self.servers, "linger.ms": 5, "acks": 1}
            )
        for partition, key, value, timestamp_ms, headers in rows:
            while True:
                try:
                    self._producer.produce(
                        topic,
                        _bytes(value),
                        _bytes(key),
                        partition,
                        timestamp=timestamp_ms,
                        headers=[(name, _bytes(text)) for name, text in headers or ()],
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        left: int = self._producer.flush(30)
        return left

    def fill(self, topic: str, partition: int, count: int, size: int, start: int = 0) -> int:
        """``count`` records of consecutive numbers, of at least ``size`` bytes each."""
        rows = [
            [partition, None, str(number).rjust(size), number, None]
            for number in range(start, start + count)
        ]
        return self.produce(topic, rows)

    def delete_before(self, topic: str, partition: int, offset: int) -> int:
        found: int = self._library.rd_kafka_mock_partition_delete_records(
            self._cluster, topic.encode(), partition, offset
        )
        return found

    def lead(self, topic: str, partition: int, broker: int) -> int:
        found: int = self._library.rd_kafka_mock_partition_set_leader(
            self._cluster, topic.encode(), partition, broker
        )
        return found

    def topic_error(self, topic: str, code: int) -> None:
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def down(self, broker: int) -> int:
        found: int = self._library.rd_kafka_mock_broker_set_down(self._cluster, broker)
        return found

    def up(self, broker: int) -> int:
        found: int = self._library.rd_kafka_mock_broker_set_up(self._cluster, broker)
        return found

    def fail(self, request: int, codes: list[int]) -> None:
        """The next requests of a kind are answered with these errors."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, request, len(codes), array
        )

    def heal(self, request: int) -> None:
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, request)


def _bytes(value: str | None) -> bytes | None:
    """JSON has no bytes: each character of the text is one."""
    return None if value is None else value.encode("latin-1")


def main() -> None:
    cluster = Cluster(int(sys.argv[1]))
    answer({"servers": cluster.servers})
    for line in sys.stdin:
        name, arguments = json.loads(line)
        command: Callable[..., object] = getattr(cluster, name)
        try:
            answer({"result": command(*arguments)})
        except Exception as error:
            answer({"error": repr(error)})
    os._exit(0)  # its brokers need no farewell


def answer(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
