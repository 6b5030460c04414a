"""Where peers come from: Flink by Maven, Bytewax by pip, by the names of their packages.

Both stay in the user's cache, ``headgate/peers``; what is there already is used as it is.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

BYTEWAX: Final = "bytewax==0.21.1"
JAVA_SOURCES: Final = Path(__file__).with_name("java")
SECONDS: Final = 900


class ToolMissing(Exception):
    """Says in one line what could not be had."""


def peers_folder() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "headgate" / "peers"


def bytewax_python() -> Path:
    """The interpreter of a virtual environment that has Bytewax; made when it is missing."""
    version = ".".join(map(str, sys.version_info[:2]))
    folder = peers_folder() / f"{BYTEWAX.replace('==', '-')}-python-{version}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        _run("Bytewax", [sys.executable, "-m", "venv", "--clear", str(folder)])
        _run("Bytewax", [str(python), "-m", "pip", "install", "--quiet", BYTEWAX])
        ready.touch()
    return python


def flink_command() -> list[str]:
    """What starts the Java twins; Maven has compiled them, if they have changed."""
    maven, java = shutil.which("mvn"), _java()
    if maven is None or java is None:
        raise ToolMissing("Java Flink needs Maven and a JDK of 17 or more: mvn and java")
    build, jars = peers_folder() / "java", peers_folder() / "maven"
    class_path = build / "classpath.txt"
    options = [f"-Dpeers.build={build}", f"-Dmaven.repo.local={jars}"]
    goals = ["compiler:compile", "dependency:build-classpath", f"-Dmdep.outputFile={class_path}"]
    pom = ["--file", str(JAVA_SOURCES / "pom.xml")]
    _run("Java Flink", [maven, "--batch-mode", "--quiet", *pom, *options, *goals])
    classes = os.pathsep.join([str(build / "classes"), class_path.read_text("utf-8")])
    return [java, "-Xmx3g", "-classpath", classes, "peers.Main"]


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def _run(tool: str, command: Sequence[str]) -> None:
    peers_folder().mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolMissing(f"{tool}: {error}") from error
    if done.returncode:
        said = (done.stdout + done.stderr).splitlines() or ["no reason given"]
        reason = next((line for line in said if "ERROR" in line), said[-1])
        raise ToolMissing(f"{tool}: {Path(command[0]).name} has failed: {reason.strip()}")
