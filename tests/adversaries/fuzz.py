"""Coverage-guided fuzzing of what adversaries speak to: ``python -m tests.adversaries.fuzz 60``.

Atheris (libFuzzer) looks for inputs that reach new code of the exchange and the control. The first
byte of an input chooses the target, the second the size of the pieces, the rest is the stream. The
corpus begins with recorded sessions. An input that breaks the law is written to ``build/fuzz`` and
printed; ``python -m tests.adversaries.fuzz build/fuzz/crash-…`` repeats it.
"""

import os
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path("build/fuzz")
PIECES: Final = (1 << 20, 64, 13, 1)
try:
    import atheris
except ImportError:
    # No failure: there are wheels for some Pythons on Linux only.
    print("skipped: Atheris is not installed here; pip install '.[fuzz]', if it has a wheel")
    sys.exit(0)

with atheris.instrument_imports(
    include=["headgate.base", "headgate.core", "headgate.control"], enable_loader_override=False
):
    from tests.adversaries import sessions, targets


def check(data: bytes) -> None:
    """One input; raises if the law does not hold."""
    if len(data) < 2:
        return
    target = targets.TARGETS[data[0] % len(targets.TARGETS)]
    target(data[2:], PIECES[data[1] % len(PIECES)])


def write_corpus(folder: Path) -> None:
    """Recorded sessions as first inputs, for each target the one that it understands."""
    folder.mkdir(parents=True, exist_ok=True)
    up, down = sessions.record_exchange()
    _, packed = sessions.record_exchange(compressed=True)
    to_driver, to_worker = sessions.record_control()
    spoken = {
        targets.producer_hears: up.stream,
        targets.consumer_hears: down.stream,
        targets.producer_hears_after_the_handshake: b"".join(up.frames[up.greetings :]),
        targets.consumer_hears_after_the_handshake: b"".join(down.frames[down.greetings :]),
        targets.consumer_hears_compressed: b"".join(packed.frames[packed.greetings :]),
        targets.driver_hears: to_driver.stream,
        targets.worker_hears: to_worker.stream,
    }
    for number, target in enumerate(targets.TARGETS):
        if target in spoken:
            (folder / f"recorded-{number}").write_bytes(bytes((number, 0)) + spoken[target])
    said = {
        targets.driver_hears_sealed: sessions.TO_DRIVER_SAID,
        targets.worker_hears_sealed: sessions.TO_WORKER_SAID,
    }
    for target, messages in said.items():
        number = targets.TARGETS.index(target)
        for at, message in enumerate(messages):
            body = sessions.encode(message)[sessions.LENGTH.size :]
            (folder / f"said-{number}-{at}").write_bytes(bytes((number, 0)) + body)


def main(arguments: list[str]) -> None:
    """Fuzz for so many seconds, or repeat an input."""
    wanted = arguments[0] if arguments else "60"
    if wanted.isdigit():
        write_corpus(FOLDER / "corpus")
        options = [f"-max_total_time={wanted}", str(FOLDER / "corpus")]
    else:
        options = [wanted]
    limits = ["-max_len=8192", "-timeout=10", "-rss_limit_mb=1024", f"-artifact_prefix={FOLDER}/"]
    atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", *options], check)
    atheris.Fuzz()


if __name__ == "__main__":
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")
    main(sys.argv[1:])
