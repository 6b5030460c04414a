"""Functions of any class, made for tests of how they are refused."""

from typing import Any


def made(kind: type, **methods: Any) -> Any:
    """An object of a class with these methods; the others return a list with one record."""
    body = {name: lambda self, *rest: [("a", 1)] for name in kind.__abstractmethods__}  # type: ignore[attr-defined]
    return type(f"My{kind.__name__}", (kind,), {**body, **methods})()
