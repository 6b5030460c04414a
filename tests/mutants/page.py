"""Write the table of docs/mutants.md anew: python -m tests.mutants.page"""

from tests.mutants.mutant import ROOT
from tests.mutants.table import CHAPTERS

PAGE = ROOT / "docs/mutants.md"
HEAD = ("| mutant | what it breaks | in | caught by |", "|---|---|---|---|")
START, END = "<!-- mutants -->\n", "<!-- /mutants -->"


def tables() -> str:
    """All mutants, by what they are about."""
    parts = []
    for title, mutants in CHAPTERS.items():
        parts += [f"\n### {title}\n", *HEAD]
        parts += [
            f"| `{mutant.name}` | {mutant.breaks} | `{mutant.path}` | {shown(mutant.caught_by)} |"
            for mutant in mutants
        ]
    return "\n".join([*parts, "", ""])


def shown(caught_by: str) -> str:
    """The simulator's command as people type it; tests as they are."""
    words = caught_by.split()
    if words[0] == "sim":
        return f"`python -m tests.{caught_by}`"
    return ", ".join(f"`{word}`" for word in words)


def page(text: str) -> str:
    """The page with the tables of today."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}{tables()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
