"""State as RocksDB sees it: keys and values as bytes.

A database key is: key group (2 bytes), state (2 bytes), the user's key, a form (1 byte), the
namespace, then nothing (value), a running number (list) or the map's key. Law: equal keys have
equal bytes, no address is the beginning of another, and an address can be read back: where the
bytes of a key do not tell the object (a frozen list, a dataclass), the entry carries it in a head.
"""

import io
import marshal
import pickle
import struct
import threading
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

import msgspec

from headgate.base.elements import Key, Record
from headgate.base.moved import NOT_FOUND, loads, loads_moved
from headgate.core.state.cursor import Namespace
from headgate.core.state.freezing import Frozen
from headgate.core.state.key_bytes import key_bytes
from headgate.core.state.key_groups import key_group

MARSHALLED: Final = frozenset({int, str, float, bool, bytes})
"""Kinds that marshal writes in a third of the time; never read by another version of Python."""

BEHIND: Final = b"\xff"
"""Above every byte that may follow an address."""

_MARSHAL: Final = 2
"""Its version; since 3 the first byte can be that of a pickle."""
_PICKLE: Final = 0x80
_PLAIN_FORM: Final = 0
_HEADED_FORM: Final = 0xFE
"""In between: the number of the class of a namespace that is a named tuple."""
_TUPLE_CODE: Final = marshal.dumps((), _MARSHAL)[0]
_START: Final = struct.Struct(">HH")
_SPACES_KEPT: Final = 1024
_LENGTH: Final = struct.Struct("<I")


def pack(value: Record) -> bytes:
    """The bytes of a value."""
    if type(value) in MARSHALLED:
        return marshal.dumps(value, _MARSHAL)
    return pickle.dumps(value, 5)


def unpack(data: bytes) -> Record:
    """A value that nobody else has."""
    try:
        return pickle.loads(data) if data[0] == _PICKLE else marshal.loads(data)
    except NOT_FOUND as error:
        return loads_moved(data, error)


class Address(msgspec.Struct, frozen=True, gc=False):
    """Where something of one state, key and namespace is."""

    prefix: bytes
    head: bytes = b""
    """Stands in front of every value here; empty if the prefix tells key and namespace."""

    def body(self, data: bytes) -> bytes:
        """What stands behind the head."""
        return behind_head(data) if self.head else data


class StoredAddress(msgspec.Struct, frozen=True):
    """A database key, read back."""

    group: int
    state: int
    key: Key
    namespace: Namespace
    prefix: bytes
    rest: bytes
    body: bytes


class AddressCodec:
    """Addresses of one backend, to and fro; for its task's thread and those of snapshots."""

    def __init__(self, max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._lock = threading.Lock()
        self._classes: list[type] = []
        self._numbers: dict[type, int] = {}
        self._spaces: dict[tuple[type, Namespace], tuple[int, bytes]] = {}
        """Namespaces that came last: a record's window is mostly that of the one before."""

    def plain_prefix(self, state: int, key: Key) -> bytes:
        """The address of a key of a PLAIN kind without namespace, in half the time; has no head."""
        group = key_group(key, self._max_parallelism)
        return _START.pack(group, state) + key_bytes(key) + _PLAIN_END

    def key_prefix(self, state: int, key: Key) -> bytes:
        """What all addresses of a state and key begin with."""
        plain = key.key if type(key) is Frozen else key
        group = key_group(plain, self._max_parallelism)
        return _START.pack(group, state) + key_bytes(key)

    def address(self, state: int, key: Key, namespace: Namespace) -> Address:
        """Keys are as the cursor holds them."""
        prefix = self.key_prefix(state, key)
        is_headed = prefix[_START.size] == _TUPLE_CODE and not is_decodable(prefix[_START.size :])
        form, space = _NO_NAMESPACE if namespace is None else self._space(namespace)
        if is_headed or form == _HEADED_FORM:
            prefix = b"%b%c%b" % (prefix, _HEADED_FORM, space)
            return Address(prefix, head_of((key, namespace)))
        return Address(b"%b%c%b" % (prefix, form, space))

    def place(self, key: bytes, data: bytes) -> StoredAddress:
        """Read an entry back; its key is as the selector has returned it, or equal."""
        file = io.BytesIO(key)
        file.seek(_START.size)
        key_form = marshal.load(file)
        form = file.read(1)[0]
        space_form = marshal.load(file)
        rest = file.read()
        prefix = key[: len(key) - len(rest)]
        group, state = _START.unpack_from(key)
        if form == _HEADED_FORM:
            found, namespace = in_head(data)
            found = found.key if type(found) is Frozen else found
            return StoredAddress(group, state, found, namespace, prefix, rest, behind_head(data))
        namespace = decode_key(space_form)
        if form != _PLAIN_FORM:
            namespace = tuple.__new__(self._classes[form - 1], namespace)
        return StoredAddress(group, state, decode_key(key_form), namespace, prefix, rest, data)

    @property
    def classes(self) -> tuple[type, ...]:
        """Of namespaces, in the order of their numbers."""
        with self._lock:
            return tuple(self._classes)

    def agree(self, classes: tuple[type, ...]) -> bool:
        """Give classes the numbers that they have in another codec; False: others have them."""
        with self._lock:
            known = len(self._classes)
            if any(one is not other for one, other in zip(self._classes, classes, strict=False)):
                return False
            for kind in classes[known:]:
                self._classes.append(kind)
                self._numbers[kind] = len(self._classes)
            return True

    def _space(self, namespace: Namespace) -> tuple[int, bytes]:
        spaces = self._spaces
        found = spaces.get((type(namespace), namespace))
        if found is None:
            if len(spaces) >= _SPACES_KEPT:
                spaces.clear()
            space = key_bytes(namespace)
            found = spaces[type(namespace), namespace] = self._form_of(namespace, space), space
        return found

    def _form_of(self, namespace: Namespace, space: bytes) -> int:
        kind = type(namespace)
        if not is_decodable(space):
            return _HEADED_FORM
        if not isinstance(namespace, tuple) or kind is tuple:
            return _PLAIN_FORM
        with self._lock:
            number = self._numbers.get(kind)
            if number is None:
                if len(self._classes) == _HEADED_FORM - 1:
                    return _HEADED_FORM
                self._classes.append(kind)
                number = self._numbers[kind] = len(self._classes)
            return number


def state_prefix(group: int, state: int) -> bytes:
    """What all addresses of a state in a key group begin with."""
    return _START.pack(group, state)


def entry_key(address: Address, key: Key) -> tuple[bytes, bytes]:
    """The database key of a map's entry, and what stands in front of its value."""
    inner = key_bytes(key)
    head = address.head if is_decodable(inner) else address.head + head_of(key)
    return address.prefix + inner, head


def entry_of(rest: bytes, body: bytes) -> tuple[Key, bytes]:
    """The map's key of an entry, and its value's bytes."""
    if is_decodable(rest):
        return decode_key(marshal.loads(rest)), body
    return in_head(body), behind_head(body)


def head_of(thing: object) -> bytes:
    """An object that stands in front of a value."""
    data = pickle.dumps(thing, 5)
    return _LENGTH.pack(len(data)) + data


def in_head(data: bytes) -> Record:
    """The object in front of a value."""
    return loads(memoryview(data)[_LENGTH.size :])


def behind_head(data: bytes) -> bytes:
    """The bytes of the value itself."""
    return data[_LENGTH.size + _LENGTH.unpack_from(data)[0] :]


def is_decodable(data: bytes) -> bool:
    """Whether the bytes of a key tell an equal key."""
    return data[0] != _TUPLE_CODE or _tells(marshal.loads(data))


def _tells(form: object) -> bool:
    if type(form) is not tuple:
        return True
    return form[0] == "number" or (form[0] == "tuple" and all(map(_tells, form[1:])))


def decode_key(form: Record) -> Key:
    """The key that a form stands for."""
    if type(form) is not tuple:
        return form
    if form[0] == "tuple":
        return tuple(map(decode_key, form[1:]))
    return _number(form[1:])


def _number(parts: Iterable[Record]) -> float | Fraction:
    first, *below = parts
    if not below:
        return float(first)
    number = Fraction(first, below[0])
    try:
        return float(number) if Fraction(float(number)) == number else number
    except OverflowError:
        return number


_NO_NAMESPACE: Final = _PLAIN_FORM, key_bytes(None)
_PLAIN_END: Final = b"%c%b" % _NO_NAMESPACE
