"""What Nexmark's queries must find, computed over all events at once, without Headgate."""

from collections import defaultdict
from typing import Any

WINDOW_MS, SLIDE_MS = 10_000, 2_000


def of_kind(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if type(event).__name__ == kind]


def q0(events: list[Any]) -> list[Any]:
    return of_kind(events, "Bid")


def q1(events: list[Any]) -> list[Any]:
    return [bid._replace(price=bid.price * 0.908) for bid in of_kind(events, "Bid")]


def q2(events: list[Any]) -> list[Any]:
    return [(bid.auction, bid.price) for bid in of_kind(events, "Bid") if bid.auction % 123 == 0]


def q3(events: list[Any]) -> list[Any]:
    persons = {person.id: person for person in of_kind(events, "Person")}
    found = []
    for auction in of_kind(events, "Auction"):
        person = persons.get(auction.seller)
        if auction.category == 10 and person is not None and person.state in ("OR", "ID", "CA"):
            found.append((person.name, person.city, person.state, auction.id))
    return found


def sales(events: list[Any]) -> list[tuple[Any, int]]:
    """Auctions with their highest price, in the order of their ends."""
    prices: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for bid in of_kind(events, "Bid"):
        prices[bid.auction].append((bid.date_time, bid.price))
    found = []
    for auction in of_kind(events, "Auction"):
        counted = [p for t, p in prices[auction.id] if auction.date_time <= t <= auction.expires]
        if counted:
            found.append((auction, max(counted)))
    return sorted(found, key=lambda sale: (sale[0].expires, sale[0].id))


def q4(events: list[Any]) -> dict[int, tuple[int, float]]:
    """By category: how many sales, and the average in the end."""
    prices: dict[int, list[int]] = defaultdict(list)
    for auction, price in sales(events):
        prices[auction.category].append(price)
    return {category: (len(all_), sum(all_) / len(all_)) for category, all_ in prices.items()}


def q5(events: list[Any]) -> list[Any]:
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for bid in of_kind(events, "Bid"):
        first = bid.date_time // SLIDE_MS * SLIDE_MS + SLIDE_MS
        for end in range(first, first + WINDOW_MS, SLIDE_MS):
            counts[end][bid.auction] += 1
    return [
        (end, auction, count)
        for end, by_auction in counts.items()
        for auction, count in by_auction.items()
        if count == max(by_auction.values())
    ]


def q6(events: list[Any]) -> dict[int, list[tuple[int, int, float]]]:
    """By seller: the averages in their order."""
    last: dict[int, list[int]] = defaultdict(list)
    found: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for auction, price in sales(events):
        prices = last[auction.seller] = [*last[auction.seller], price][-10:]
        found[auction.seller].append((auction.seller, auction.id, sum(prices) / len(prices)))
    return found


def q7(events: list[Any]) -> list[Any]:
    windows: dict[int, list[Any]] = defaultdict(list)
    for bid in of_kind(events, "Bid"):
        windows[bid.date_time // WINDOW_MS].append(bid)
    return [
        bid
        for bids in windows.values()
        for bid in bids
        if bid.price == max(other.price for other in bids)
    ]


def q8(events: list[Any]) -> list[Any]:
    sellers = {(a.seller, a.date_time // WINDOW_MS) for a in of_kind(events, "Auction")}
    return [
        (person.id, person.name, person.date_time // WINDOW_MS * WINDOW_MS)
        for person in of_kind(events, "Person")
        if (person.id, person.date_time // WINDOW_MS) in sellers
    ]
