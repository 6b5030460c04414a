"""The pipeline of ``headgate demo``: orders, running totals of each customer, a slow look-up.

Workers import this module, so it loads nothing that shows anything.
"""

import time
from dataclasses import dataclass

from headgate.api.datastream import DataStream
from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.elements import Record
from headgate.connectors.files.sink import JsonLinesSink
from headgate.connectors.generator import DataGeneratorSource

CUSTOMERS = 500
PRICES = {"apples": 120, "bread": 340, "coffee": 890, "dates": 560, "eggs": 280}
PRODUCTS = list(PRICES)
CITIES = ["Aarhus", "Bergen", "Cork", "Delft", "Evora", "Faro", "Ghent"]


@dataclass(frozen=True, slots=True)
class Size:
    """How much, how fast."""

    orders: int
    tasks: int
    seconds: float
    """What the slow operator takes for all orders."""
    rate: float | None = None


def build_orders(env: StreamExecutionEnvironment, size: Size, folder: str) -> None:
    """Write the pipeline into an environment."""
    source = DataGeneratorSource(make_order, size.orders, size.rate)
    orders = env.from_source(source, None, "orders").map(price).name("price")
    totals = orders.key_by(customer_of).reduce(add).name("running totals")
    look_up(totals, size).sink_to(JsonLinesSink(folder, "totals", overwrite=True)).name("files")


def look_up(totals: DataStream, size: Size) -> DataStream:
    """The slow operator, in tasks of its own: chained to the totals it would slow them unseen."""
    slow = SlowLookUp(size.seconds * size.tasks / size.orders)
    return totals.map(slow).name("slow look-up").start_new_chain()


def make_order(index: int) -> Record:
    """Order number ``index``; the same each time, though it looks like chance."""
    chance = index * 2_654_435_761 % 2**32
    return {
        "order": index,
        "customer": f"customer-{(chance >> 20) % CUSTOMERS:03d}",
        "product": PRODUCTS[(chance >> 12) % len(PRODUCTS)],
        "quantity": 1 + (chance >> 4) % 5,
    }


def price(order: Record) -> Record:
    """What a customer owes for an order, in cents."""
    cents = PRICES[order["product"]] * order["quantity"]
    return {"customer": order["customer"], "orders": 1, "cents": cents}


def customer_of(order: Record) -> str:
    customer: str = order["customer"]
    return customer


def add(total: Record, order: Record) -> Record:
    return {
        "customer": total["customer"],
        "orders": total["orders"] + order["orders"],
        "cents": total["cents"] + order["cents"],
    }


class SlowLookUp:
    """Asks a slow database where the customer lives, or rather sleeps as long as one would take."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, total: Record) -> Record:
        time.sleep(self._seconds)
        return {**total, "city": CITIES[int(total["customer"][-3:]) % len(CITIES)]}
