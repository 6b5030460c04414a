"""What a process has open, and its threads: compared before and after, they show leaks.

Used by the watches over tests of hosts and connectors, and by the workers that they start, which
would spend a tenth of their start on pytest. A Spark session of earlier tests in this process opens
and closes lines to its JVM when it likes (its garbage collector has some of its own): they are
known by their ports, and left out.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE_S = 5.0
STATES = {"01": "established", "06": "time wait", "08": "closed by its peer", "0A": "listening"}

_lines_to_java: set[str] = set()
"""All that were ever seen: one that the JVM has reset has no ports any more."""
_watched: list[type] = []
"""Py4J's class of such lines, as soon as each new one is noted."""


def descriptors() -> dict[str, str]:
    """Open sockets, polls and files of this process, by number."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # the one that listed the folder
    _note_new_lines_to_java()
    if ports := _ports_of_java():
        for socket, (_, ends, _) in _sockets().items():
            if ports & {int(end.rpartition(":")[2], 16) for end in ends}:
                _lines_to_java.add(socket)
    return {number: target for number, target in found.items() if target not in _lines_to_java}


def left_open(before: dict[str, str]) -> list[str]:
    """What has been opened since and stays open, with what is known of it."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        left = {n: target for n, target in descriptors().items() if before.get(n) != target}
        if not left or time.monotonic() > give_up:
            return [f"{number}: {_named(target)}" for number, target in left.items()]
        time.sleep(0.02)


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("headgate-")]


def _note_new_lines_to_java() -> None:
    """One may come and be reset before anybody has seen its ports."""
    kind: Any = getattr(sys.modules.get("py4j.clientserver"), "ClientServerConnection", None)
    if kind is None or kind in _watched:
        return
    connect = kind.connect_to_java_server

    def connect_and_note(connection: Any) -> None:
        connect(connection)
        _lines_to_java.add(os.readlink(f"/proc/self/fd/{connection.socket.fileno()}"))

    kind.connect_to_java_server = connect_and_note
    _watched.append(kind)


def _ports_of_java() -> set[int]:
    """Of the JVM, and those at which the session listens for it."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(context, "_gateway", None)
    if gateway is None:
        return set()
    ports = {gateway.gateway_parameters.port}
    if (callbacks := gateway.get_callback_server()) is not None:
        ports.add(callbacks.get_listening_port())
    session = getattr(context, "_active_spark_context", None)
    address = getattr(getattr(session, "_accumulatorServer", None), "server_address", None)
    if isinstance(address, tuple):
        ports.add(address[1])
    return ports


def _sockets() -> dict[str, tuple[str, tuple[str, str], str]]:
    """The protocol, both ends (in hexadecimal digits) and the state of each TCP socket."""
    return {
        f"socket:[{words[9]}]": (table, (words[1], words[2]), words[3])
        for table in ("tcp", "tcp6")
        for words in _rows(table)
    }


def _rows(table: str) -> Iterator[list[str]]:
    for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
        yield line.split()


def _named(target: str) -> str:
    if not target.startswith("socket:"):
        return target
    if (known := _sockets().get(target)) is not None:
        table, (here, there), state = known
        return f"{target} {table} {_address(here)} to {_address(there)}, {STATES.get(state, state)}"
    for words in _rows("unix"):
        if target == f"socket:[{words[6]}]":
            return f"{target} unix {' '.join(words[7:])}"
    return f"{target} that is not connected"


def _address(end: str) -> str:
    host, _, port = end.rpartition(":")
    if len(host) == 8:
        host = ".".join(str(byte) for byte in reversed(bytes.fromhex(host)))
    return f"{host}:{int(port, 16)}"
