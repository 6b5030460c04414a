"""The key that checkpoints are signed with. Only the driver has it.

Tasks tell the driver the digest of everything they write, the driver puts the digests into the
metadata and signs that; a driver that goes on from it checks the signature before it decodes a
byte, and gives the digests to the tasks, which check what they read before they unpickle it. So a
signature binds each piece of state to its job, checkpoint, operator and key group. Law: the key is
neither shown nor pickled, so it gets into no log, closure or plan.
"""

import hashlib
import hmac
import os
import stat
from dataclasses import dataclass, field
from typing import Final, NoReturn

from headgate.base.elements import ByteLike
from headgate.base.errors import SettingsInvalid
from headgate.base.recovery_settings import (
    HMAC_SECRET,
    HMAC_SECRET_FILE,
    CheckpointSettings,
)

SIGNATURE_BYTES: Final = 32
SHORTEST_KEY: Final = 16
"""Bytes; fewer can be guessed."""
_LARGEST_FILE: Final = 64 * 1024
_DOMAIN: Final = b"headgate checkpoint metadata\0"


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """What a job's checkpoints are signed and checked with."""

    key: bytes = field(repr=False)
    allows_unsigned: bool = False
    """Whether the job may go on from one that has no signature."""

    def sign(self, *parts: ByteLike) -> bytes:
        """Of the parts one behind the other."""
        made = hmac.new(self.key, _DOMAIN, hashlib.sha256)
        for part in parts:
            made.update(part)
        return made.digest()

    def fits(self, signature: ByteLike, *parts: ByteLike) -> bool:
        return hmac.compare_digest(bytes(signature), self.sign(*parts))

    def __reduce__(self) -> NoReturn:
        raise TypeError("the key of checkpoints stays in the driver, and is not pickled")


def checkpoint_key(settings: CheckpointSettings) -> CheckpointKey | None:
    """By the settings; None: there is no key. Raises SettingsInvalid."""
    if settings.hmac_secret and settings.hmac_secret_file:
        raise SettingsInvalid(HMAC_SECRET_FILE, f"is set, and so is {HMAC_SECRET}; set one of them")
    if settings.hmac_secret_file:
        key, name = read_key(settings.hmac_secret_file), HMAC_SECRET_FILE
    elif settings.hmac_secret:
        key, name = settings.hmac_secret.encode(errors="surrogateescape"), HMAC_SECRET
    else:
        return None
    if len(key) < SHORTEST_KEY:
        raise SettingsInvalid(
            name, f"the key has less than {SHORTEST_KEY} bytes; make a longer one"
        )
    return CheckpointKey(key, settings.hmac_allows_unsigned)


def read_key(path: str) -> bytes:
    """The content of a file without spaces around it; nobody else may have access to it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            data = os.read(descriptor, _LARGEST_FILE) if stat.S_ISREG(found.st_mode) else b""
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise SettingsInvalid(HMAC_SECRET_FILE, f"{path!r} cannot be read: {problem}") from error
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_FILE:
        raise SettingsInvalid(HMAC_SECRET_FILE, f"{path!r} is no file with a key")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise SettingsInvalid(
            HMAC_SECRET_FILE, f"{path!r} can be used by others; take their rights (chmod 600)"
        )
    return data.strip()
