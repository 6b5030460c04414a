"""S3 as a file system of pyarrow, and its errors in a few words.

pyarrow asks again only for lost connections if it opens an address by itself; checkpoints and file
connectors open S3 here instead. Law: throttling, errors of the server, lost connections and answers
that do not come are tried again, a bounded number of times with growing waits, and then raised.
"""

import re
from typing import Any, Final

ATTEMPTS: Final = 8
"""How often a request is tried; the waits between double, from 50 ms, about 6 s in all."""
CONNECT_S: Final = 5.0
ANSWER_S: Final = 15.0
"""How long a server may be silent in the middle of a request."""

_S3: Final = re.compile(r"s3:/", re.IGNORECASE)
_ARROW: Final = re.compile(
    r"AWS Error (?:UNKNOWN .*?ExceptionName: )?(\w+)[^:]*?(?: Message|operation[^:]*): ([^\n]*)"
)
_ANSWER: Final = re.compile(r"<Code>(\w+)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)
_STATUS: Final = re.compile(r"status code:? (\d{3})|HTTP response code (\d{3})|HTTP status (\d{3})")

_PROBLEMS: Final = {
    "NOSUCHBUCKET": ("there is no such bucket", "make the bucket, or name another one"),
    "INVALIDACCESSKEYID": (
        "the access key is unknown to the store",
        "check AWS_ACCESS_KEY_ID, or the user in the address",
    ),
    "SIGNATUREDOESNOTMATCH": (
        "the secret key does not fit the access key",
        "check AWS_SECRET_ACCESS_KEY, or the password in the address, and the region",
    ),
    "ACCESSDENIED": (
        "access is denied",
        "allow these credentials to list, read, write and delete objects there",
    ),
    "SLOWDOWN": (
        "the store throttles requests (SlowDown)",
        "take checkpoints less often, or spread jobs over several prefixes or buckets",
    ),
}
_REFUSED: Final = (
    "the store refuses these credentials",
    "check them, and that they may list, read, write and delete objects there",
)
_STATUSES: Final = {"401": "ACCESSDENIED", "403": "ACCESSDENIED", "503": "SLOWDOWN"}


def is_s3(uri: str) -> bool:
    return _S3.match(uri) is not None


def open_s3(uri: str) -> tuple[Any, str]:
    """The file system of an address, and the path within it; raises what pyarrow raises."""
    from pyarrow import fs  # noqa: PLC0415 - who only wants words for an error does not load it

    system, path = fs.FileSystem.from_uri(uri)  # knows all options, and refuses others
    strategy = fs.AwsDefaultS3RetryStrategy(max_attempts=ATTEMPTS)
    options = s3_options(system)
    if options["connect_timeout"] <= 0:
        options["connect_timeout"] = CONNECT_S
    if options["request_timeout"] <= 0:
        options["request_timeout"] = ANSWER_S
    return fs.S3FileSystem(**options, retry_strategy=strategy), path


def s3_options(system: Any) -> dict[str, Any]:
    """The options of an S3FileSystem; credentials of the environment are None or empty."""
    (options,) = system.__reduce__()[1]
    return {name: value for name, value in options.items() if value or name in _KEPT}


_KEPT: Final = ("connect_timeout", "request_timeout", "background_writes")


def s3_problem(text: str) -> tuple[str, str]:
    """What an error of S3 says, and advice; empty if it is none that is known."""
    arrow, answer, status = _ARROW.search(text), _ANSWER.search(text), _STATUS.search(text)
    code = words = ""
    if answer is not None:
        code, words = answer[1], answer[2] or ""
    elif arrow is not None:
        code, words = arrow[1], arrow[2]
    number = next((group for group in status.groups() if group), "") if status else ""
    known = code.replace("_", "").upper()
    if known not in _PROBLEMS:
        known = _STATUSES.get(number, "")
    if known == "ACCESSDENIED" and not answer and (not arrow or "No response body" in words):
        return _REFUSED  # the answer to a HEAD request does not say why
    if known:
        return _PROBLEMS[known]
    if not code and not number:
        return "", ""
    said = " ".join(words.split()).rstrip(".")
    advice = "check that the storage is there and can be written"
    return f"{code or f'HTTP status {number}'}{f': {said}' if said else ''}", advice
