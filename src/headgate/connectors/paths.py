"""Places in a few words, for the names of operators: they stand in plans, logs and metrics."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from headgate.base.errors import PlanInvalid
from headgate.base.redaction import has_stray_login, plain_url

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
        place = re.sub(r"://[^/@]*@", "://", plain_url(place))
    if len(place) <= MOST_CHARS:
        return place
    return f"…{place[1 - MOST_CHARS :]}"


def short_folder(place: str) -> str:
    """A folder as ``short_place`` shows it, with a slash at its end."""
    return f"{short_place(place).rstrip('/')}/"


def folder_uri(folder: AnyPath) -> str:
    """A folder as it is sent to the tasks: an absolute path, or a URI."""
    text = os.fspath(folder)
    if "://" in text and not text.startswith("file:"):
        return text.rstrip("/")
    return os.path.abspath(local_path(text))


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


def split_url(user: str, url: object) -> SplitResult:
    """The parts of a URL; raises PlanInvalid, which shows nothing of it: where would a login end?

    ``user``: who was given it, for messages.
    """
    parts: SplitResult | None
    try:
        parts = urlsplit(str(url))
        parts.port  # noqa: B018 - it is read here
    except ValueError:
        parts = None
    if parts is None or has_stray_login(str(url)):
        raise PlanInvalid(
            f"{user}: the URL cannot be read; check its host and port, and percent-encode special "
            f"signs in user and password (%2F for /, %40 for @, %3F for ?, %23 for #)"
        )
    return parts


def refused_scheme(user: str, schemes: Iterable[str], example: str) -> PlanInvalid:
    """For a URL that begins otherwise; it is not shown."""
    *front, last = (f"{scheme}://" for scheme in schemes)
    begins = f"{', '.join(front)} or {last}" if front else last
    return PlanInvalid(f"{user}: the URL does not begin with {begins}; give one such as {example}")


def settle_folder(path: str) -> None:
    """Make the names in a folder durable, or what a file holds that others have written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def local_path(path: AnyPath) -> str:
    """The path without ``file://``; other file systems are refused."""
    text = readable_path(path)
    if "://" in text:
        shown = plain_url(text)
        raise PlanInvalid(f"path {shown!r} is on no local file system; give a path of this machine")
    return text
