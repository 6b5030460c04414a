"""Places in a few words, for the names of operators: they stand in plans, logs and metrics."""

import os
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from headgate.base.errors import PlanInvalid

AnyPath: TypeAlias = "str | os.PathLike[str]"


MOST_CHARS: Final = 40


def short_place(place: str) -> str:
    """A path as seen from here, or its end; a URI without user, password and query."""
    scheme, sign, rest = place.partition("://")
    if not sign or scheme == "file":
        path = rest if sign else place
        near = os.path.relpath(path) if os.path.isabs(path) else os.path.normpath(path)
        place = path if near.startswith(os.pardir) else near
    else:
        place = f"{scheme}://{re.sub(r'^[^/@]*@', '', rest).partition('?')[0]}"
    if len(place) <= MOST_CHARS:
        return place
    return f"…{place[1 - MOST_CHARS :]}"


def short_folder(place: str) -> str:
    """The same for a folder."""
    return f"{short_place(place).rstrip('/')}/"


def short_places(places: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return short_place(places[0]) + more


def readable_path(path: AnyPath) -> str:
    """The path without ``file://``; an address of another file system as it is."""
    text = os.fspath(path)
    if text.startswith("file:"):
        text = text.removeprefix("file:").removeprefix("//")
    return text


def without_secrets(place: str) -> str:
    """An address for people: without user, password and options."""
    scheme, sign, rest = place.partition("://")
    if not sign:
        return place
    rest = rest.partition("?")[0]
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and ":" in user:  # Azure has a container before the sign
        rest = rest.removeprefix(f"{user}@")
    return f"{scheme}://{rest}"


def local_path(path: AnyPath) -> str:
    """The path without ``file://``; other file systems are refused."""
    text = os.fspath(path)
    if text.startswith("file:"):
        text = text.removeprefix("file:").removeprefix("//")
    if "://" in text:
        raise PlanInvalid(f"path {text!r} is on no local file system; give a path of this machine")
    return text
