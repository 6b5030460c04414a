"""Routers: which channel a record takes. They see lists, so that routing costs little per record.

Law: ``split`` gives every record to exactly one channel and keeps the order within each.
Keys go by key group (a stable hash modulo the maximum parallelism), so that state can be rescaled.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import compress
from operator import itemgetter, not_
from typing import Final, NoReturn, Protocol

from headgate.base.elements import Bundle, Key, Record, Times
from headgate.base.errors import HeadgateError, raise_user_error
from headgate.base.fields import FieldShape, RecordFields
from headgate.core.state.key_taking import key_form, key_taker
from headgate.core.state.keys import key_group, mix

Split = list[tuple[int, list[Record], list[int | None] | None]]
"""Channel, its records, and their timestamps if there are any."""

BundleSplit = list[tuple[int, Bundle]]
"""Channel and its records."""

MEMO_KEYS: Final = 65_536
MEMO_MISSES: Final = 8 * MEMO_KEYS
"""After so many keys that did not fit others may be in use: it is emptied, and filled anew."""


MANY_KEYS: Final = 64
"""To compute fewer at once costs as much as one by one."""


class Router(Protocol):
    """Chooses channels. ``set_up`` gets their number once, before the first record."""

    is_broadcast: bool

    def set_up(self, channels: int) -> None: ...

    def pick(self, record: Record) -> int: ...

    def split(self, records: list[Record], timestamps: list[int | None] | None) -> Split: ...


class _PerRecord:
    """Splits by asking ``pick`` for every record."""

    is_broadcast = False

    def __init__(self) -> None:
        self.channels = 0

    def set_up(self, channels: int) -> None:
        assert channels > 0
        self.channels = channels

    def pick(self, record: Record) -> int:
        raise NotImplementedError

    def split(self, records: list[Record], timestamps: list[int | None] | None) -> Split:
        if self.channels == 1:
            return [(0, records, timestamps)]
        picks = [self.pick(record) for record in records]  # map would end at a StopIteration
        return split_by(picks, self.channels, records, timestamps)


class RoundRobin(_PerRecord):
    """One record to each channel in turn; the default."""

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self._next = first

    def set_up(self, channels: int) -> None:
        super().set_up(channels)
        self._next %= channels

    def pick(self, record: Record) -> int:
        channel = self._next
        self._next = (channel + 1) % self.channels
        return channel

    def split(self, records: list[Record], timestamps: list[int | None] | None) -> Split:
        n, first = self.channels, self._next
        if n == 1:
            return [(0, records, timestamps)]
        self._next = (first + len(records)) % n
        return [
            ((first + k) % n, records[k::n], timestamps and timestamps[k::n])
            for k in range(min(n, len(records)))
        ]


class Forward(_PerRecord):
    """Everything to the one channel of the consumer with the same index."""

    def set_up(self, channels: int) -> None:
        assert channels == 1, f"forward needs exactly one channel, not {channels}"
        super().set_up(channels)

    def pick(self, record: Record) -> int:
        return 0


class Rescale(RoundRobin):
    """Round robin among the few consumers that the plan has connected to this producer."""


class Shuffle(_PerRecord):
    """Each record to any channel, by chance; the same seed gives the same chances.

    Law: every channel is as likely as any other, whatever went before.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._state = mix(seed + 0x9E3779B9) or 1  # a generator that stands at 0 would stay there

    def pick(self, record: Record) -> int:
        return self._picks(1)[0]

    def split(self, records: list[Record], timestamps: list[int | None] | None) -> Split:
        if self.channels == 1:
            return [(0, records, timestamps)]
        return split_by(self._picks(len(records)), self.channels, records, timestamps)

    def _picks(self, count: int) -> list[int]:
        """The next numbers of an xorshift generator, scaled to the channels."""
        state, channels = self._state, self.channels
        picks = []
        for _ in range(count):
            state ^= (state << 13) & 0xFFFFFFFF
            state ^= state >> 17
            state ^= (state << 5) & 0xFFFFFFFF
            picks.append(state * channels >> 32)
        self._state = state
        return picks


class Global(_PerRecord):
    """Everything to the first channel."""

    def pick(self, record: Record) -> int:
        return 0

    def split(self, records: list[Record], timestamps: list[int | None] | None) -> Split:
        return [(0, records, timestamps)]


class KeyGroupPartitioner(_PerRecord):
    """Records with equal keys to the same channel.

    ``reader``: the operator on the keyed stream. An error of the key selector is told as its own,
    though the selector runs before the records travel. If the reader has an error policy,
    ``reader_takes_all``, a record whose key cannot be taken goes to its first task: there the
    selector fails again, and the policy says what becomes of the record.
    """

    def __init__(
        self,
        key_of: Callable[[Record], Key],
        max_parallelism: int = 128,
        reader: str = "",
        reader_takes_all: bool = False,
    ) -> None:
        super().__init__()
        self._key_of = key_of
        self._take_keys = key_taker(key_of)
        self._form = key_form(key_of)
        self._part = None if self._form is None else self._form.part
        self._reader = reader
        self._reader_takes_all = reader_takes_all
        self._max_parallelism = max_parallelism
        self._memo = ChannelMemo(self._channel_of, self._channels_of)

    def set_up(self, channels: int) -> None:
        super().set_up(channels)
        assert channels <= self._max_parallelism, "more channels than key groups"

    def pick(self, record: Record) -> int:
        return self._picks([record])[0]

    def split(self, records: list[Record], timestamps: list[int | None] | None) -> Split:
        if self.channels == 1:
            return [(0, records, timestamps)]
        part = self._part
        is_item = part is not None and not part.is_attribute and not self._memo.is_full
        if timestamps is None and part is not None and is_item:
            lanes = self._lanes_by(part.name, records)
            if lanes is not None:
                return [(channel, lane, None) for channel, lane in enumerate(lanes) if lane]
        return split_by(self._picks(records), self.channels, records, timestamps)

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        """Whether records may stay apart, because the key is taken from their fields."""
        return self._form is not None and self._form.places(shape, count) is not None

    def split_fields(self, fields: RecordFields, times: Times) -> BundleSplit | None:
        """Split records that are taken apart; None: it cannot, and ``split`` can."""
        if self.channels == 1:
            return [(0, Bundle.of_fields(fields, times))]
        places = fields.places
        keys = None if self._form is None else self._form.of_fields(fields)
        if keys is None:
            return None
        moved: list[list[Record]] = [place for place in places if type(place) is list]
        if times is not None:
            moved.append(times)
        try:
            if type(keys) is not list:  # all have the same key
                return [(self.pick_key(keys[0]), Bundle.of_fields(fields, times))]
            if self._memo.is_full:
                lanes = _lanes_of(self._picks_of(keys), self.channels, moved)
            elif len(moved) == 1 and moved[0] is keys:
                lanes = [self._key_lanes(keys)]
            else:
                lanes = self._lanes(keys, moved)
        except Exception:  # a key that is not hashable, or fails to be hashed
            return None
        split: BundleSplit = []
        for channel, items in enumerate(zip(*lanes, strict=True)):
            if items[0]:
                rest = iter(items)
                own = [next(rest) if type(place) is list else place for place in places]
                chosen = fields.with_places(own, len(items[0]))
                split.append((channel, Bundle.of_fields(chosen, next(rest, None))))
        return split

    def _lanes(self, keys: list[Key], moved: list[list[Record]]) -> list[list[list[Record]]]:
        """Splits each of the lists ``moved`` into a list for each channel."""
        memo = self._memo
        if len(moved) != 2:
            return _lanes_of(memo.picks(keys), self.channels, moved)
        known, missed, is_learnt = memo.known, memo.missed, False
        lanes: list[list[list[Record]]] = [[[] for _ in range(self.channels)] for _ in moved]
        first, second = lanes
        for key, item, other in zip(keys, *moved, strict=True):
            try:
                channel = known[key]
            except KeyError:
                is_learnt = is_learnt or memo.learn(keys)
                channel = missed(key)
            first[channel].append(item)
            second[channel].append(other)
        return lanes

    def _key_lanes(self, keys: list[Key]) -> list[list[Key]]:
        """A list of keys for each channel."""
        lanes: list[list[Key]] = [[] for _ in range(self.channels)]
        memo, is_learnt = self._memo, False
        known, missed = memo.known, memo.missed
        for key in keys:
            try:
                lanes[known[key]].append(key)
            except KeyError:
                is_learnt = is_learnt or memo.learn(keys)
                lanes[missed(key)].append(key)
        return lanes

    def _lanes_by(self, item: Record, records: list[Record]) -> list[list[Record]] | None:
        """Sort records into a list for each channel in one go; None: a key cannot be taken."""
        lanes: list[list[Record]] = [[] for _ in range(self.channels)]
        memo, is_learnt, pick_key = self._memo, False, self.pick_key
        known = memo.known
        try:
            for record in records:
                key = record[item]
                try:
                    lanes[known[key]].append(record)
                except KeyError:  # it is new
                    is_learnt = is_learnt or memo.learn([other[item] for other in records])
                    lanes[pick_key(key)].append(record)
                except TypeError:  # it is not hashable
                    lanes[pick_key(key)].append(record)
        except Exception:  # the selector itself fails, where the user can see it
            return None
        return lanes

    def _picks(self, records: list[Record]) -> list[int]:
        try:
            keys = self._take_keys(records)
            try:
                return self._picks_of(keys)
            except TypeError:  # a key that is not hashable
                return [self.pick_key(key) for key in keys]
        except Exception as error:
            if self._reader_takes_all and not isinstance(error, HeadgateError | MemoryError):
                return [self._pick_or_first(record) for record in records]
            self._raise(error)

    def _picks_of(self, keys: list[Key]) -> list[int]:
        """The channel of each key; of more than the memo holds, many at once if possible."""
        picks = self._channels_of(keys) if self._memo.is_full else None
        return self._memo.picks(keys) if picks is None else picks

    def _pick_or_first(self, record: Record) -> int:
        try:
            key = self._key_of(record)
        except Exception as error:
            if isinstance(error, HeadgateError | MemoryError):
                self._raise(error)
            return 0
        try:
            return self.pick_key(key)
        except Exception as error:  # the reader might take such a key, in the wrong task
            self._raise(error)

    def _raise(self, error: Exception) -> NoReturn:
        if not self._reader:
            raise error
        raise_user_error(error, self._reader, "when the key of a record was selected")

    def pick_key(self, key: Key) -> int:
        try:
            return self._memo[key]
        except TypeError:  # a key that is not hashable is hashed each time
            return self._channel_of(key)

    def _channel_of(self, key: Key) -> int:
        group = key_group(key, self._max_parallelism)
        return group * self.channels // self._max_parallelism

    def _channels_of(self, keys: list[Key]) -> list[int] | None:
        """The channels of many keys at once; None: too few, or of kinds that are hashed alone."""
        groups = None
        if len(keys) >= MANY_KEYS:
            groups = _many_groups()(keys, self._max_parallelism)
        if groups is None:
            return None
        channels: list[int] = (groups * self.channels // self._max_parallelism).tolist()
        return channels


class ChannelMemo:
    """Channels by key; one that is asked for first is computed, and what is old goes if need be.

    Loops look into ``known`` themselves, and ask for what they have ``missed``: a plain dictionary
    takes three quarters of the time of one that answers for missing keys.
    """

    __slots__ = ("_channel_of", "_channels_of", "_missed", "known")

    def __init__(
        self,
        channel_of: Callable[[Key], int],
        channels_of: Callable[[list[Key]], list[int] | None] = lambda keys: None,
    ) -> None:
        """``channels_of``: of many keys at once; None: they have to be asked for one by one."""
        self.known: dict[Key, int] = {}
        self._channel_of = channel_of
        self._channels_of = channels_of
        self._missed = 0

    @property
    def is_full(self) -> bool:
        """Many keys may be missed now: to ask for each costs less than to fail for some."""
        return len(self.known) >= MEMO_KEYS

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, key: Key) -> int:
        channel = self.known.get(key)
        return self.missed(key) if channel is None else channel

    def picks(self, keys: list[Key]) -> list[int]:
        """The channel of each key."""
        for look_again in (True, False):
            if self.is_full:
                break
            try:
                picks = list(map(self.known.__getitem__, keys))
            except KeyError:
                if look_again:
                    self.learn(keys)
            else:
                if len(picks) == len(keys):
                    return picks
                break  # a key has raised StopIteration, which ends a map without a word
        return [self[key] for key in keys]

    def learn(self, keys: list[Key]) -> bool:
        """Compute the channels of a bundle's new keys, if they are many; returns True."""
        known = self.known
        new = [key for key in dict.fromkeys(keys) if key not in known]
        channels = self._channels_of(new[: MEMO_KEYS - len(known)])
        if channels is not None:
            known.update(zip(new, channels))  # noqa: B905 - as many as there is room for
        return True

    def missed(self, key: Key) -> int:
        """The channel of a key that is not known."""
        if self.is_full:
            self._missed += 1
            if self._missed < MEMO_MISSES:
                return self._channel_of(key)
            self.known.clear()
            self._missed = 0
        channel = self.known[key] = self._channel_of(key)
        return channel


@cache
def _many_groups() -> Callable[[list[Key], int], Record | None]:
    """What computes many groups at once; nothing if numpy is not installed."""
    try:
        from headgate.core.state.many_keys import groups_of_keys  # noqa: PLC0415 - it loads numpy
    except ImportError:
        return lambda keys, max_parallelism: None
    return groups_of_keys


class CustomPartitioner(_PerRecord):
    """The user's own function of key and number of channels."""

    def __init__(
        self,
        partitioner: Callable[[Key, int], int],
        key_of: Callable[[Record], Key] = lambda record: record,
    ) -> None:
        super().__init__()
        self._partitioner = partitioner
        self._key_of = key_of

    def pick(self, record: Record) -> int:
        channel = self._partitioner(self._key_of(record), self.channels)
        if type(channel) is not int or not 0 <= channel < self.channels:
            raise ValueError(
                f"the partitioner returned {channel!r}; it must return "
                f"an int from 0 to {self.channels - 1}"
            )
        return channel


class Broadcast(_PerRecord):
    """Every record to every channel; the writer serializes it once."""

    is_broadcast = True

    def pick(self, record: Record) -> int:
        raise AssertionError("a broadcast record has no single channel")


def split_by(
    picks: Sequence[int],
    channels: int,
    records: list[Record],
    timestamps: list[int | None] | None,
) -> Split:
    """Sort records into a list for each channel, as ``picks`` says."""
    if timestamps is None:
        (parts,) = _lanes_of(picks, channels, [records])
        return [(channel, part, None) for channel, part in enumerate(parts) if part]
    parts, times = _lanes_of(picks, channels, [records, timestamps])
    return [(channel, part, times[channel]) for channel, part in enumerate(parts) if part]


def split_bundle(router: Router, bundle: Bundle) -> BundleSplit:
    """Split records, as fields if they are taken apart and the router can do that."""
    if bundle.fields is not None and isinstance(router, KeyGroupPartitioner):
        split = router.split_fields(bundle.fields, bundle.timestamps)
        if split is not None:
            return split
    return [
        (channel, Bundle(records, times))
        for channel, records, times in router.split(bundle.records, bundle.timestamps)
    ]


def _lanes_of(
    picks: Sequence[int], channels: int, moved: Sequence[list[Record]]
) -> list[list[list[Record]]]:
    """Splits each of the lists ``moved`` into a list for each channel."""
    if channels == 2 and len(moved) < 3:
        return [
            [list(compress(items, map(not_, picks))), list(compress(items, picks))]
            for items in moved
        ]
    numbers = range(len(picks))
    if len(moved) == 1:
        return [_sorted_out(picks, channels, moved[0])]
    if channels == 2:
        lanes = [list(compress(numbers, map(not_, picks))), list(compress(numbers, picks))]
    else:
        lanes = _sorted_out(picks, channels, numbers)
    take = [_taker(lane) for lane in lanes]
    return [[list(taken(items)) for taken in take] for items in moved]


def _sorted_out(picks: Sequence[int], channels: int, items: Iterable[Record]) -> list[list[Record]]:
    lanes: list[list[Record]] = [[] for _ in range(channels)]
    for channel, item in zip(picks, items, strict=True):
        lanes[channel].append(item)
    return lanes


def _taker(numbers: list[int]) -> Callable[[list[Record]], Sequence[Record]]:
    """What takes the items with these numbers out of a list."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda items: [items[number] for number in numbers]
