"""What the Bytewax twins of ordinary programs do with a key's state: plain functions.

``stateful_map`` calls them with the state of the value's key, or None, and the value; they return
the new state and what is emitted. The stateless functions are those of the programs themselves.
"""

from typing import Any, NamedTuple

from benchmarks.ordinary_programs import Reading, Sale, Visit, add_event, line_of

Event = tuple[str, str, int]


def add_up(total: int | None, value: int) -> tuple[int, int]:
    total = (total or 0) + value
    return total, total


def add_to_totals(totals: dict[str, Any] | None, event: dict[str, Any]) -> tuple[Any, Any]:
    totals = add_event(totals, event)
    return totals, line_of(event, totals)


def market_key(sale: Sale) -> str:
    """Keys of Bytewax are texts."""
    return f"{sale.country}/{sale.user[-1]}"


def add_cents(total: int, sale: Sale) -> int:
    return total + sale.cents


def market_and_sum(found: tuple[str, tuple[int, int]]) -> tuple[tuple[str, ...], int]:
    """Of a key with the number and the sum of a window."""
    key, (_, total) = found
    return tuple(key.split("/")), total


def count_page(pages: dict[str, int] | None, visit: Visit) -> tuple[dict[str, int], Any]:
    if pages is None:
        pages = {}
    times = (pages.get(visit.page) or 0) + 1
    pages[visit.page] = times
    return pages, (visit.page, visit.ms, times)


def add_time(total: int | None, visited: tuple[str, int, int]) -> tuple[int, int]:
    total = (total or 0) + visited[1]
    return total, total


class VisitRow(NamedTuple):
    """In place of a Row with declared types."""

    user: str
    page: str
    ms: int


def visit_row(row: tuple[str, str, int, int]) -> VisitRow:
    return VisitRow(row[0], row[1], row[2])


def user_of_visit_row(row: VisitRow) -> str:
    return row.user


def add_visit_row(before: VisitRow | None, row: VisitRow) -> tuple[VisitRow, VisitRow]:
    if before is not None:
        row = VisitRow(before.user, row.page, before.ms + row.ms)
    return row, row


def order_as_pair(event: Event) -> tuple[str, tuple[int, int]]:
    return event[0], (1, 0)


def payment_as_pair(event: Event) -> tuple[str, tuple[int, int]]:
    return event[0], (0, 1)


def add_order_or_payment(
    counts: tuple[int, int] | None, more: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    orders, payments = counts or (0, 0)
    counts = orders + more[0], payments + more[1]
    return counts, counts


def order_and_counts(found: tuple[str, tuple[int, int]]) -> tuple[str, int, int]:
    order, (orders, payments) = found
    return order, orders, payments


def keep_last(state: tuple[list[int], int] | None, visit: Visit) -> tuple[Any, Any]:
    last, seen = state or ([], 0)
    last.append(visit.ms)
    if len(last) > 10:
        last = last[-10:]
    seen += 1
    return (last, seen), (visit.user, seen, sum(last) // len(last))


def reading_key(reading: Reading) -> str:
    return f"{reading.sensor}/{reading.level}"


def count_alarm(count: int | None, reading: Reading) -> tuple[int, dict[str, Any]]:
    count = (count or 0) + 1
    alarm = {"sensor": reading.sensor, "level": reading.level, "count": count, "at": reading.at}
    return count, alarm
