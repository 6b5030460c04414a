"""Time and chance as programs under test meet them."""

import datetime
import pickle
import random
import threading
import time
import uuid
from datetime import datetime as moment
from time import time as seconds

from headgate.sim.clock import Clock
from headgate.testing.virtual_time import virtual_time

DAY = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.timezone.utc)
DAY_MS = int(DAY.timestamp() * 1000)


def test_all_clocks_show_the_virtual_one() -> None:
    clock = Clock(DAY_MS)
    real = time.time()
    with virtual_time(clock, 1):
        clock.advance(1500)
        assert time.time() == seconds() == DAY_MS / 1000 + 1.5
        assert time.time_ns() == (DAY_MS + 1500) * 1_000_000
        assert time.monotonic() == 1.5
        later = DAY + datetime.timedelta(seconds=1.5)
        assert moment.now(datetime.timezone.utc) == later
        assert datetime.datetime.now(datetime.timezone.utc) == later
        assert moment.utcnow() == later.replace(tzinfo=None)
        time.sleep(10)
        assert clock.now_ms == 11_500
    assert abs(time.time() - real) < 60
    assert type(moment.now()) is datetime.datetime is moment


def test_other_threads_see_the_real_clock() -> None:
    seen: list[float] = []
    with virtual_time(Clock(), 1):
        thread = threading.Thread(target=lambda: seen.append(time.time()))
        thread.start()
        thread.join()
    assert seen[0] > 1e9


def test_times_are_pickled_meanwhile() -> None:
    with virtual_time(Clock(), 1):
        data = pickle.dumps([DAY, moment(2024, 1, 1)])
        assert pickle.loads(data) == [DAY, moment(2024, 1, 1)]
        assert isinstance(DAY, moment) and isinstance(DAY, datetime.datetime)
    assert pickle.loads(pickle.dumps(DAY)) == DAY


def test_chance_comes_from_the_seed_and_goes_on_where_it_was() -> None:
    def drawn(clock: Clock, seed: int) -> tuple[float, uuid.UUID]:
        with virtual_time(clock, seed):
            return random.random(), uuid.uuid4()

    random.seed(7)
    expected = random.Random(7).random()
    clock = Clock()
    first, second = drawn(clock, 1), drawn(clock, 1)
    assert first != second
    assert drawn(Clock(), 1) == first
    assert drawn(Clock(), 2) != first
    assert random.random() == expected
