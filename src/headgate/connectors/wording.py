"""What client libraries say, as part of a sentence of ours.

Law: it is one line, and a clause can follow it: a full stop of the library's would stand before
our semicolon.
"""

from headgate.base.redaction import without_secrets


def clause(text: object) -> str:
    """The words of an error, in one line, without secrets and without the stop at their end.

    ::

        f"{whose}: {clause(error)}; check the address"
    """
    return without_secrets(" ".join(str(text).split()).rstrip(" .;:"))
