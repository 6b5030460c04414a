"""Objects of S3 that are put on a condition, which pyarrow cannot do: by obstore.

Law: of clients that create an object at the same moment exactly one succeeds, and so it is with
those that replace the same version. An answer that was lost is no harm: whoever finds its own data
there has put it. Only drivers need it; tasks write under names that nobody else has.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, TypeAlias

from headgate.base.elements import ByteLike
from headgate.base.errors import StorageUnusable
from headgate.base.extras import install_command
from headgate.base.object_store import ANSWER_S, ATTEMPTS, CONNECT_S, s3_options, s3_problem

Version: TypeAlias = Any
"""An object's tag, as obstore takes it."""

_MOST_CACHED: Final = 16
_NO_BUCKET: Final = "NoSuchBucket"
_FIRST_WAIT_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class ObjectFound:
    """An object's data, and the version that they are."""

    data: bytes
    version: Version


class ConditionalPuts:
    """Objects of one bucket; any thread may use it. Connections close by themselves."""

    def __init__(self, store: Any, obstore: Any, errors: Any) -> None:
        self._store = store
        self._obstore = obstore
        self._errors = errors

    def create(self, key: str, data: ByteLike, shown: str) -> Version | None:
        """Put an object that is not there; None: it is there already, with other data."""
        return self._put(key, bytes(data), "create", shown)

    def replace(self, key: str, data: ByteLike, version: Version, shown: str) -> Version | None:
        """Put an object in place of this version; None: another one is there, or none."""
        return self._put(key, bytes(data), version, shown)

    def read(self, key: str, shown: str) -> ObjectFound | None:
        """None: it is not there."""
        with self._object_errors(shown):
            try:
                found = self._obstore.get(self._store, key)
                return ObjectFound(bytes(found.bytes()), _version_of(found.meta))
            except (self._errors.NotFoundError, FileNotFoundError) as error:
                if _NO_BUCKET in str(error):
                    raise
                return None

    def remove(self, key: str, shown: str) -> None:
        with self._object_errors(shown):
            self._obstore.delete(self._store, key)

    def _put(self, key: str, data: bytes, mode: Any, shown: str) -> Version | None:
        for left in reversed(range(ATTEMPTS)):
            with self._object_errors(shown):
                try:
                    made = self._obstore.put(self._store, key, data, mode=mode, use_multipart=False)
                    return _version_of(made)
                except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
                    left = 0
                except (self._errors.NotFoundError, FileNotFoundError) as error:
                    if _NO_BUCKET in str(error):
                        raise
                    left = 0
                except self._errors.GenericError as error:
                    # obstore itself does not put again on a condition if the connection is lost.
                    if not left or s3_problem(str(error))[0]:
                        raise
            found = self.read(key, shown)
            if found is not None and found.data == data:
                return found.version  # only the answer was lost
            if not left:
                return None
            time.sleep(_FIRST_WAIT_S * 2 ** (ATTEMPTS - 1 - left))
        return None

    @contextmanager
    def _object_errors(self, shown: str) -> Iterator[None]:
        try:
            yield
        except (self._errors.BaseError, OSError) as error:
            text = str(error)
            problem, advice = s3_problem(text)
            if not problem:
                problem = text.partition("\n")[0].partition(" - ")[0].rstrip(".")
                advice = "check the address, the network, and that the store runs"
            raise StorageUnusable(shown, problem, advice) from error


def puts_of(system: Any, bucket: str, shown: str) -> ConditionalPuts:
    """Raises StorageUnusable if obstore is not installed, or cannot use the options."""
    try:
        obstore, stores = import_module("obstore"), import_module("obstore.store")
        errors = import_module("obstore.exceptions")
    except ImportError as error:
        raise StorageUnusable(
            shown,
            "S3 needs obstore, which puts objects on a condition so that one driver has a job",
            f"run {install_command('s3')}, where the driver runs",
        ) from error
    options = s3_options(system)
    try:
        store = _store(stores, bucket, tuple(sorted(_config(options).items())))
    except Exception as error:  # options that only pyarrow understands
        problem = f"obstore cannot open it ({str(error).partition(chr(10))[0]})"
        raise StorageUnusable(shown, problem, "check the options of the address") from error
    return ConditionalPuts(store, obstore, errors)


@lru_cache(_MOST_CACHED)
def _store(stores: Any, bucket: str, config: tuple[tuple[str, Any], ...]) -> Any:
    """Kept: each has its own connections."""
    settings = dict(config)
    return stores.S3Store(
        bucket,
        config=settings,
        client_options={
            "allow_http": str(settings.get("endpoint", "")).startswith("http:"),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(seconds=ANSWER_S),
        },
        retry_config={
            "max_retries": ATTEMPTS - 1,
            "retry_timeout": timedelta(seconds=2 * ANSWER_S),
            "backoff": {
                "init_backoff": timedelta(seconds=_FIRST_WAIT_S),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        },
    )


def _config(options: dict[str, Any]) -> dict[str, Any]:
    """pyarrow's options as obstore calls them; it takes the rest from the environment, too."""
    names = {
        "access_key": "access_key_id",
        "secret_key": "secret_access_key",
        "session_token": "session_token",
        "region": "region",
        "anonymous": "skip_signature",
        "force_virtual_addressing": "virtual_hosted_style_request",
        "role_arn": "role_arn",
        "session_name": "role_session_name",
    }
    config = {names[name]: value for name, value in options.items() if name in names and value}
    config["conditional_put"] = "etag"
    if endpoint := options.get("endpoint_override"):
        scheme = options.get("scheme", "https")
        config["endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    return config


def _version_of(found: Any) -> Version:
    return {name: found[name] for name in ("e_tag", "version") if found.get(name)}
