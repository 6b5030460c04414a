"""What backends share: how a state is stored, and that a name means one thing."""

import pytest

from headgate.base.errors import StateBroken
from headgate.core.state.backend import Backends, Catalog, KeyedBackend, StateSpec
from headgate.core.state.memory import MemoryBackend, MemoryBackends


def test_time_to_live_changes_what_is_stored() -> None:
    assert StateSpec("s", "list").stored_as == "list"
    assert StateSpec("s", "list", has_ttl=True).stored_as == "list with time to live"


def test_a_name_means_one_kind_however_it_became_known() -> None:
    catalog = Catalog()
    catalog.open(StateSpec("s", "value"))
    catalog.open(StateSpec("s", "value", namespaced=True))
    catalog.restore("s", "value")
    catalog.restore("t", "map")
    with pytest.raises(
        ValueError, match="'t' is there as a map and cannot be used as a list; give"
    ):
        catalog.open(StateSpec("t", "list"))
    with pytest.raises(StateBroken, match="'s' is there as a value and cannot be used as a map"):
        catalog.restore("s", "map")
    with pytest.raises(ValueError, match="as a value and cannot be used as a value with time"):
        catalog.open(StateSpec("s", "value", has_ttl=True))
    assert catalog.stored_as == {"s": "value", "t": "map"}


def test_sieves_are_made_when_a_snapshot_is_taken() -> None:
    now = [10]

    def sieve() -> object:
        then = now[0]
        return lambda content: content if content > then else None

    catalog = Catalog()
    catalog.open(StateSpec("plain", "value"))
    catalog.open(StateSpec("s", "value", sieve=sieve))  # type: ignore[arg-type]
    sieves = catalog.sieves()
    now[0] = 100
    assert set(sieves) == {"s"}
    assert sieves["s"](11) == 11 and sieves["s"](10) is None


def test_the_backend_in_memory_is_one() -> None:
    backends: Backends = MemoryBackends()
    backend: KeyedBackend = backends.keyed("op", range(1), 1)
    assert isinstance(backend, MemoryBackend)
