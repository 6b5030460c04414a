"""``python -m tests.connectors.kafka.broker --port 9092 --orders 9093 --folder DIR``"""

import argparse
import asyncio
from pathlib import Path

from tests.connectors.kafka.broker.server import Server


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--orders", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--login", default="")
    parser.add_argument("--auto-create", action="store_true")
    given = parser.parse_args()

    async def run() -> None:
        await Server(given.port, given.folder, given.login, given.auto_create).run(given.orders)

    asyncio.run(run())


if __name__ == "__main__":
    main()
