"""Finds the log of a stream that the options of a streaming query name.

``job`` (an id or a name) is looked up among the jobs of this user on this machine, ``path`` is the
folder itself, ``reference`` a file in which a program that has not started its job yet will say
where the log is. Law: what is not there is told in one sentence with what there is.
"""

import time
from collections.abc import Mapping
from typing import Final

from headgate.base.errors import StreamUnfit
from headgate.connectors.streaming.log_folder import LogFolder
from headgate.connectors.streaming.stream_log import StreamInfo, StreamLog

REFERENCE: Final = "reference"
LOOK_S: Final = 0.1


def stream_uri(options: Mapping[str, str], kind: str, patience_s: float = float("inf")) -> str:
    """The folder of the log; waits for the job of a reference. Raises StreamUnfit."""
    if reference := options.get(REFERENCE):
        folder, _, name = reference.rpartition("/")
        give_up = time.monotonic() + patience_s
        while (found := LogFolder(folder).read(name)) is None:
            if time.monotonic() > give_up:
                raise StreamUnfit("the job that makes this stream has not been started")
            time.sleep(LOOK_S)
        return found.decode()
    if path := options.get("path"):
        return path
    job, called = options.get("job"), options.get(kind)
    if not job or not called:
        raise StreamUnfit(
            f'name a running job and its {kind}: option("job", id or name) and '
            f'option("{kind}", name); or option("path", folder) for one of another machine'
        )
    return _uri_of(job, kind, called)


def stream_log(uri: str, kind: str) -> tuple[StreamLog, StreamInfo]:
    """The log in a folder; raises StreamUnfit if there is none of this kind."""
    log = StreamLog(uri)
    info = log.info()
    if info is None:
        raise StreamUnfit(
            f"{log.folder.shown()} holds no stream of a Headgate job; give the folder that the job "
            f"has, which every host must reach"
        )
    if info.kind != kind:
        raise StreamUnfit(
            f"{log.folder.shown()} is the {info.kind} {info.name!r} of a job; "
            f"{'write' if info.kind == 'input' else 'read'} it"
        )
    return log, info


def _uri_of(job: str, kind: str, name: str) -> str:
    from headgate.host.driver.job_client import find_job

    entry = find_job(job)
    streams = {(found, called): uri for found, called, uri in entry.streams}
    if (kind, name) not in streams:
        names = [called for found, called in streams if found == kind]
        there = f"it has {', '.join(map(repr, names))}" if names else f"it has no {kind}s"
        raise StreamUnfit(f"job {entry.job} ({entry.name}) has no {kind} {name!r}; {there}")
    return streams[kind, name]
