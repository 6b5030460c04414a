"""Write the settings table of docs/configuration.md anew: python docs/generate_configuration.py"""

from pathlib import Path

from headgate.base.settings import describe_settings

PAGE = Path(__file__).with_name("configuration.md")
START, END = "<!-- settings -->\n", "<!-- /settings -->"


def table() -> str:
    """Key, default and meaning of every setting, in the order of the code."""
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for key, default, meaning in describe_settings():
        rows.append(f"| `{key}` | {f'`{default}`' if default else 'none'} | {meaning} |")
    return "\n".join(["", *rows, "", ""])


def page(text: str) -> str:
    """The page with a current table."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
