"""How to install an extra of Headgate, as all messages say it."""


def install_command(extra: str) -> str:
    """In a clone, as long as no index of packages has Headgate."""
    return f"pip install '.[{extra}]' in a clone of Headgate"
