"""The daemon of the workers notes how they end, and leaves their own children alone."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, signal, sys, time
from headgate.spark import exit_daemon
from types import SimpleNamespace

def manager():
    daemon.signal.signal(signal.SIGCHLD, daemon.signal.SIG_IGN)
    for how in ("killed", "exits", "fine"):
        pid = os.fork()
        if pid == 0:
            assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3 if how == "exits" else 0)
    time.sleep(0.5)

daemon = SimpleNamespace(manager=manager)
exit_daemon.import_module = lambda name: daemon
exit_daemon.main()
"""


def test_it_notes_who_was_killed_and_who_has_failed(tmp_path: Path) -> None:
    environment = {"HEADGATE_WORKER_EXITS": str(tmp_path), "PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, timeout=60)
    assert sorted(note.read_text() for note in tmp_path.iterdir()) == ["-9", "3"]
