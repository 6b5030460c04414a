"""A mutant: a bug that is planted in a copy of the source, for a named test to find."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = Path("src/headgate")


class Stale(Exception):
    """The source has changed: the text that a mutant replaces is not there exactly once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """Replaces ``old``, which stands once in ``path`` below src/headgate, by ``new``."""

    name: str
    path: str
    old: str
    new: str
    breaks: str
    """What goes wrong, as a reader of the code would notice it."""
    caught_by: str
    """Tests (a path, perhaps with ``::test``), or ``sim`` and options of the simulator."""

    def mutated(self, text: str) -> str:
        """The source with the bug; raises Stale."""
        found = text.count(self.old)
        if found != 1:
            raise Stale(f"{self.path} has this text {found} times, not once:\n{self.old}")
        return text.replace(self.old, self.new)

    def source(self) -> str:
        """The source without the bug, as it is today."""
        return (ROOT / PACKAGE / self.path).read_text(encoding="utf-8")

    def plant(self, tree: Path) -> None:
        """Change the copy of the repository's ``src`` below ``tree``; raises Stale."""
        target = tree / PACKAGE / self.path
        changed = self.mutated(target.read_text(encoding="utf-8"))
        target.write_text(changed, encoding="utf-8")
        for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
            compiled.unlink()  # it is told from the source by size and second alone
