"""How deep the parts of a pickle stand in each other, found without loading it.

Python hashes a tuple by hashing what it holds, and does not look at how much of its stack is left:
a million tuples in each other end the process. Law: a pickle that is nested deeper than
``MOST_NESTED`` is refused before an object is made of it; for others the check costs nothing or a
count of bytes, unless they have as many tuples. Called by ``SafeLoader``.
"""

import pickletools
from collections.abc import Callable
from typing import Final

from headgate.base.errors import StateBroken

MOST_NESTED: Final = 20_000
"""A fifth of what a stack of 8 MiB holds; pickle itself writes no more than about a thousand."""
_NESTING: Final = b"\x85\x86\x87("
"""Each tuple that holds something needs one of these: its opcode, or the mark before its parts."""
_MARK: Final = -1
_ADDS: Final = frozenset("aesu\x90b")
"""Opcodes that add to what they leave on the stack: items of lists, dicts and sets, and fields."""
_PUTS: Final = frozenset("pqr")
_GETS: Final = frozenset("ghj")
_STOP: Final = ord(".")
_MEMOIZE: Final = 0x94


def check_nesting(data: bytes) -> None:
    """Raises StateBroken; bytes that are no pickle are left to the unpickler."""
    if len(data) <= MOST_NESTED or len(data) - len(data.translate(None, _NESTING)) <= MOST_NESTED:
        return
    try:
        depth = nesting(data)
    except (IndexError, KeyError, ValueError):
        return
    if depth > MOST_NESTED:
        raise StateBroken(
            f"the state holds a value whose parts stand {depth:,} deep in each other, and "
            f"{MOST_NESTED:,} are the most that can be read; no job has written that"
        )


def nesting(data: bytes) -> int:
    """The depth of the deepest object; raises what a wrong pickle leads to."""
    stack: list[int] = []
    memo: dict[int, int] = {}
    at = deepest = 0
    while (code := data[at]) != _STOP:
        at += 1
        opcode = _OPCODES[code]
        end = at + opcode.size if opcode.size >= 0 else opcode.end(data, at)
        if opcode.is_plain:
            stack.append(0)
        elif code == _MEMOIZE:
            memo[len(memo)] = stack[-1]
        elif opcode.gets:
            stack.append(memo.get(_index(opcode.name, data, at, end), 0))
        elif opcode.puts:
            memo[_index(opcode.name, data, at, end)] = stack[-1]
        else:
            opcode.step(stack)
            if stack and stack[-1] > deepest:
                deepest = stack[-1]
        at = end
    return deepest


def _index(name: str, data: bytes, start: int, end: int) -> int:
    text = data[start:end]
    return int(text) if name in "pg" else int.from_bytes(text, "little")


class _Opcode:
    """What one opcode takes from the bytes and does to the stack."""

    __slots__ = (
        "_adds",
        "_leaves",
        "_takes",
        "_takes_slice",
        "end",
        "gets",
        "is_plain",
        "name",
        "puts",
        "size",
    )

    def __init__(self, info: pickletools.OpcodeInfo) -> None:
        self.name = info.code
        self.gets, self.puts = info.code in _GETS, info.code in _PUTS
        self.size = 0 if info.arg is None else info.arg.n
        self.end = _end_of(info)
        before = [item.name for item in info.stack_before]
        self._takes_slice = "stackslice" in before
        self._takes = len([name for name in before if name not in ("mark", "stackslice")])
        self._leaves = [item.name == "mark" for item in info.stack_after]
        self._adds = info.code in _ADDS
        self.is_plain = not before and self._leaves == [False] and not self.gets
        """It leaves a number, a text, an empty collection."""

    def step(self, stack: list[int]) -> None:
        taken: list[int] = []
        if self._takes_slice:
            mark = len(stack) - 1
            while stack[mark] != _MARK:
                mark -= 1
            taken = stack[mark + 1 :]
            del stack[mark:]
        if self._adds:
            while len(taken) < self._takes - 1 and not self._takes_slice:
                taken.append(stack.pop())
            if taken and (depth := max(taken) + 1) > stack[-1]:
                stack[-1] = depth
            return
        for _ in range(self._takes):
            taken.append(stack.pop())
        depth = max(taken) + 1 if taken else 0
        stack += [_MARK if is_mark else depth for is_mark in self._leaves]


def _end_of(info: pickletools.OpcodeInfo) -> Callable[[bytes, int], int]:
    """Where the opcode's argument ends, given where it begins."""
    argument = info.arg
    if argument is None or argument.n >= 0:
        return lambda data, start: start + (0 if argument is None else argument.n)
    if argument.n == pickletools.UP_TO_NEWLINE:
        if argument.name == "stringnl_noescape_pair":
            return lambda data, start: _after_line(data, _after_line(data, start))
        return _after_line
    width = _WIDTHS[argument.n]
    return lambda data, start: start + width + int.from_bytes(data[start : start + width], "little")


def _after_line(data: bytes, start: int) -> int:
    return data.index(b"\n", start) + 1


_WIDTHS: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_OPCODES: Final = {ord(info.code): _Opcode(info) for info in pickletools.opcodes}
