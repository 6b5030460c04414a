"""State as RocksDB stores it: keys and values as bytes.

A database key is: key group (2 bytes), state (2 bytes), the user's key, a form (1 byte), the
namespace, then nothing (value), a running number (list) or the map's key. Law: equal keys have
equal bytes, no address is a prefix of another, and an address can be decoded: where a key cannot be
rebuilt from its bytes (a frozen list, a dataclass), the value begins with a head that holds it.
A value is a number or text as MessagePack, in an array of one, or bytes, or a pickle; the first
byte says which. Keys, and values of releases up to 0.1, are as ``marshal`` writes in its version 2.
They are read here, since ``marshal`` is not made for bytes of strangers: only numbers, texts,
bytes, booleans, None and tuples nested up to ``MOST_NESTED`` are read, all else raises ValueError.
"""

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
from headgate.core.state.keys import Frozen, key_bytes, key_group
from headgate.core.state.snapshot import Load

MOST_NESTED: Final = 500
"""How deep tuples may nest: Python hashes one without a look at its stack; no job has more."""
TUPLE: Final = ord("(")

_NONE, _TRUE, _FALSE, _INT, _LONG, _FLOAT, _TEXT, _BYTE_STRING = b"NTFilgus"
_ATOMS: Final = {_NONE: None, _TRUE: True, _FALSE: False}
_DIGIT_BITS: Final = 15
"""Bits in a digit of an integer that 32 bits do not hold; a digit takes two bytes."""
_DIGITS_AT_ONCE: Final = 8
"""They fill whole bytes, so that long integers are read in linear time."""
_int_at = struct.Struct("<i").unpack_from
_double_at = struct.Struct("<d").unpack_from

AFTER_ALL: Final = b"\xff"
"""Greater than every byte that may follow an address."""

_PACKED: Final = frozenset({int, str, float, bool})
"""Types that MessagePack writes in a third of the time that pickle takes."""
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[int | str | float | bool]).decode
_IN_ARRAY: Final = _encode((0,))[0]
_BYTES: Final = b"\xc1"
"""Before bytes; MessagePack begins with it never."""
_PICKLE: Final = 0x80
_REBUILT: Final = frozenset({int, str, bytes, float, bool, type(None)})
"""Keys that can be decoded, in tuples, too."""
_PLAIN_FORM: Final = 0
_HEADED_FORM: Final = 0xFE
"""Forms in between are the number of the namespace's class, a named tuple."""
_START: Final = struct.Struct(">HH")
_SPACES_KEPT: Final = 1024
_LENGTH: Final = struct.Struct("<I")


def read_form(data: bytes) -> Record:
    """What all of these bytes stand for; raises ValueError."""
    try:
        code, rest = data[0], len(data) - 5
        if code == _TEXT and _int_at(data, 1)[0] == rest:  # as below, in half the time
            return data[5:].decode("utf-8", "surrogatepass")
        if code == _INT and not rest:
            return _int_at(data, 1)[0]
        form, end = _read(data, 0)
    except (IndexError, struct.error) as error:
        raise _cut() from error
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow a key or value in a database")
    return form


def read_form_at(data: bytes, start: int) -> tuple[Record, int]:
    """What stands from here on, and where it ends; raises ValueError."""
    try:
        return _read(data, start)
    except (IndexError, struct.error) as error:
        raise _cut() from error


def _read(data: bytes, start: int) -> tuple[Record, int]:
    return _read_tuple(data, start + 1, 1) if data[start] == TUPLE else _read_atom(data, start)


def _read_atom(data: bytes, start: int) -> tuple[Record, int]:
    code, at = data[start], start + 1
    if code == _INT:
        return _int_at(data, at)[0], at + 4
    if code in _ATOMS:
        return _ATOMS[code], at
    if code in (_TEXT, _BYTE_STRING):
        at += 4
        end = at + _int_at(data, start + 1)[0]
        if not at <= end <= len(data):
            raise _cut()
        held = data[at:end]
        return held.decode("utf-8", "surrogatepass") if code == _TEXT else held, end
    if code == _FLOAT:
        return _double_at(data, at)[0], at + 8
    if code == _LONG:
        (size,) = _int_at(data, at)
        digits = struct.unpack_from(f"<{abs(size)}H", data, at + 4)
        return _whole(digits) if size > 0 else -_whole(digits), at + 4 + 2 * abs(size)
    raise ValueError(f"a key or value in a database begins with {code:#x}, as none does")


def _read_tuple(data: bytes, start: int, depth: int) -> tuple[tuple[Record, ...], int]:
    if depth > MOST_NESTED:
        raise ValueError(f"a key in a database is nested more than {MOST_NESTED:,} deep")
    (size,) = _int_at(data, start)
    at = start + 4
    if not 0 <= size <= len(data) - at:  # each item has a byte at least
        raise _cut()
    items: list[Record] = []
    for _ in range(size):
        code = data[at]
        if code == _TEXT:  # as in ``_read_atom``, without a call
            start, end = at + 5, at + 5 + _int_at(data, at + 1)[0]
            if not start <= end <= len(data):
                raise _cut()
            items.append(data[start:end].decode("utf-8", "surrogatepass"))
            at = end
        elif code == _INT:
            items.append(_int_at(data, at + 1)[0])
            at += 5
        else:
            nested = code == TUPLE
            item, at = _read_tuple(data, at + 1, depth + 1) if nested else _read_atom(data, at)
            items.append(item)
    return tuple(items), at


def _whole(digits: tuple[int, ...]) -> int:
    """An integer of its digits, the least significant first."""
    parts = []
    for start in range(0, len(digits), _DIGITS_AT_ONCE):
        part = 0
        for digit in reversed(digits[start : start + _DIGITS_AT_ONCE]):
            if digit >> _DIGIT_BITS:
                raise ValueError(f"a number in a database has the digit {digit}")
            part = part << _DIGIT_BITS | digit
        parts.append(part.to_bytes(_DIGIT_BITS, "little"))
    return int.from_bytes(b"".join(parts), "little")


def _cut() -> ValueError:
    return ValueError("a key or value in a database is cut")


def pack(value: Record) -> bytes:
    kind = type(value)
    if kind in _PACKED:
        try:
            return _encode((value,))
        except (OverflowError, ValueError):  # more than 64 bits, or half of a surrogate pair
            return pickle.dumps(value, 5)
    return _BYTES + value if kind is bytes else pickle.dumps(value, 5)


def unpack(data: bytes, load: Load | None = None) -> Record:
    """A fresh copy of the value; ``load``: what makes objects of pickles, if not pickle itself."""
    first = data[0]
    if first == _IN_ARRAY:
        return _decode(data)[0]
    if first != _PICKLE:
        return data[1:] if first == _BYTES[0] else read_form(data)
    if load is not None:
        return load(data)  # and nobody else, whatever it raises
    try:
        return pickle.loads(data)
    except NOT_FOUND as error:
        return loads_moved(data, error)


class Address(msgspec.Struct, frozen=True, gc=False):
    """Where the entries of one state, key and namespace are."""

    prefix: bytes
    head: bytes = b""
    """Precedes every value here; empty if key and namespace can be decoded from the prefix."""

    def body(self, data: bytes) -> bytes:
        """The value after the head."""
        return after_head(data) if self.head else data


class StoredAddress(msgspec.Struct, frozen=True):
    """A decoded database entry."""

    group: int
    state: int
    key: Key
    namespace: Namespace
    prefix: bytes
    rest: bytes
    body: bytes


class AddressCodec:
    """Encodes and decodes addresses of one backend, on its task's thread and those of snapshots."""

    def __init__(self, max_parallelism: int, load: Load = loads) -> None:
        self._load = load
        self._max_parallelism = max_parallelism
        self._lock = threading.Lock()
        self._classes: list[type] = []
        self._numbers: dict[type, int] = {}
        self._spaces: dict[tuple[type, Namespace], tuple[int, bytes]] = {}
        """Recent namespaces: a record's window is mostly that of the record before."""

    def plain_prefix(self, state: int, key: Key) -> bytes:
        """The address of a PLAIN key without namespace, in half the time; it has no head."""
        group = key_group(key, self._max_parallelism)
        return _START.pack(group, state) + key_bytes(key) + _PLAIN_END

    def key_prefix(self, state: int, key: Key) -> bytes:
        """The common prefix of all addresses of a state and key."""
        plain = key.key if type(key) is Frozen else key
        group = key_group(plain, self._max_parallelism)
        return _START.pack(group, state) + key_bytes(key)

    def address(self, state: int, key: Key, namespace: Namespace) -> Address:
        """The address of a key as the cursor holds it."""
        prefix = self.key_prefix(state, key)
        is_headed = not is_rebuilt(key) and not is_decodable(prefix[_START.size :])
        form, space = _NO_NAMESPACE if namespace is None else self._space(namespace)
        if is_headed or form == _HEADED_FORM:
            prefix = b"%b%c%b" % (prefix, _HEADED_FORM, space)
            return Address(prefix, head_of((key, namespace)))
        return Address(b"%b%c%b" % (prefix, form, space))

    def decode(self, key: bytes, data: bytes) -> StoredAddress:
        """Decode an entry; its key equals what the key selector returned."""
        key_form, at = read_form_at(key, _START.size)
        form = key[at]
        space_form, at = read_form_at(key, at + 1)
        prefix, rest = key[:at], key[at:]
        group, state = _START.unpack_from(key)
        if form == _HEADED_FORM:
            found, namespace = in_head(data, self._load)
            found = found.key if type(found) is Frozen else found
            return StoredAddress(group, state, found, namespace, prefix, rest, after_head(data))
        namespace = decode_key(space_form)
        if form != _PLAIN_FORM:
            kind = self._classes[form - 1]
            is_tuple = issubclass(kind, tuple)  # else it stands for a class that was not loaded
            namespace = tuple.__new__(kind, namespace) if is_tuple else kind(*namespace)
        return StoredAddress(group, state, decode_key(key_form), namespace, prefix, rest, data)

    @property
    def classes(self) -> tuple[type, ...]:
        """Classes of namespaces, in the order of their numbers."""
        with self._lock:
            return tuple(self._classes)

    def agree(self, classes: tuple[type, ...]) -> bool:
        """Number classes as another codec does; False: the numbers are taken."""
        with self._lock:
            known = len(self._classes)
            if any(own is not other for own, other in zip(self._classes, classes, strict=False)):
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
    """The database key of a map's entry, and the head of its value."""
    inner = key_bytes(key)
    is_plain = is_rebuilt(key) or is_decodable(inner)
    return address.prefix + inner, address.head if is_plain else address.head + head_of(key)


def entry_of(rest: bytes, body: bytes, load: Load = loads) -> tuple[Key, bytes]:
    """The map key of an entry, and the bytes of its value."""
    form = read_form(rest)
    if _is_form_decodable(form):
        return decode_key(form), body
    return in_head(body, load), after_head(body)


def head_of(thing: object) -> bytes:
    """An object that precedes a value."""
    data = pickle.dumps(thing, 5)
    return _LENGTH.pack(len(data)) + data


def in_head(data: bytes, load: Load = loads) -> Record:
    """The object that precedes a value."""
    return load(memoryview(data)[_LENGTH.size :])


def after_head(data: bytes) -> bytes:
    """The bytes of the value itself."""
    return data[_LENGTH.size + _LENGTH.unpack_from(data)[0] :]


def is_rebuilt(key: Key) -> bool:
    """Whether ``is_decodable`` is known to be true without a look at the key's bytes."""
    return type(key) in _REBUILT or (type(key) is tuple and _REBUILT.issuperset(map(type, key)))


def is_decodable(data: bytes) -> bool:
    """Whether an equal key can be rebuilt from a key's bytes."""
    return data[0] != TUPLE or _is_form_decodable(read_form(data))


def _is_form_decodable(form: object) -> bool:
    if type(form) is not tuple:
        return True
    if form[0] == "tuple":
        return tuple not in map(type, form) or all(map(_is_form_decodable, form[1:]))
    return bool(form[0] == "number")


def decode_key(form: Record) -> Key:
    """The key that a form stands for."""
    if type(form) is not tuple:
        return form
    if form[0] == "tuple":
        items: tuple[Key, ...] = form[1:]
        return tuple(map(decode_key, items)) if tuple in map(type, items) else items
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
