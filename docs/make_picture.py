"""Draw docs/running-job.svg anew: python docs/make_picture.py [FILE [OPTIONS OF headgate demo]]

The picture is one moment of a real run. `headgate demo` runs on the embedded Spark with a
pseudo-terminal as its screen. Of the frames that the live display draws there, those count that
show every task running and name a bottleneck; the middle one becomes the SVG.
"""

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).with_name("running-job.svg")
COLUMNS = 88
HIDE_CURSOR = "\x1b[?25l"
REDRAW = re.compile(r"\r(?:\x1b\[2K)?(?:\x1b\[1A\x1b\[2K)+")
FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def run_demo(options: list[str]) -> str:
    """Everything that `headgate demo` writes to a terminal, control sequences included."""
    screen, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "headgate", "demo", "--folder", folder, *options]
        demo = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,  # with a terminal there it would wait for Ctrl-C
            stdout=terminal,
            stderr=terminal,
            env=environment,
        )
        os.close(terminal)
        written = read_to_end(screen)
        os.close(screen)
        if demo.wait():
            sys.exit(f"headgate demo has failed:\n{written}")
    return written


def read_to_end(screen: int) -> str:
    chunks = []
    while True:
        try:
            chunk = os.read(screen, 65536)
        except OSError:  # how Linux reports that the last process has closed the terminal
            chunk = b""
        if not chunk:
            return b"".join(chunks).decode()
        chunks.append(chunk)


def find_moment(written: str) -> str:
    """The introduction and the chosen frame below it, still with their colours."""
    before, _, drawn = written.partition(HIDE_CURSOR)
    introduction = before.split("\r\n\r\n")[0]  # what the JVM says follows an empty line
    frames = [frame for frame in REDRAW.split(drawn) if is_telling(frame)]
    if not frames:
        sys.exit("no frame shows all tasks running and a bottleneck; try --seconds 20")
    return f"$ headgate demo\n{introduction}\n\n{frames[len(frames) // 2]}".replace("\r", "")


def is_telling(frame: str) -> bool:
    """Whether every vertex has a bar, and the cause of back pressure is named."""
    is_whole = "vertex" in frame and "bottleneck" in frame
    return is_whole and not any(word in frame for word in ("starting", "ended", "finished"))


def draw(moment: str) -> str:
    """An SVG of a terminal. Viewers use a monospace font of their own: nothing is downloaded."""
    console = Console(
        record=True, file=io.StringIO(), width=COLUMNS, force_terminal=True, legacy_windows=False
    )
    console.print(Text.from_ansi(moment), soft_wrap=True)
    return FONT_FACE.sub("", console.export_svg(title="headgate demo", unique_id="headgate"))


def main(arguments: list[str]) -> None:
    path = Path(arguments[0]) if arguments else PICTURE
    options = arguments[1:] or ["--seconds", "12"]  # a bottleneck is named after five
    path.write_text(draw(find_moment(run_demo(options))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
