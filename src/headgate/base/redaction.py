"""Hides secrets in settings, addresses and texts: passwords, tokens, keys, signatures.

Plans, logs, errors, tracebacks, the REST API and archives all use this module. Law: a setting whose
key names a secret, or whose value has one in it, is hidden whole; in a text only the secret is. A
key is judged by its words, so that ``tokenizer``, ``key_by`` and ``passenger`` name no secret.
Where an address can be read in two ways, the reading with a password counts.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

HIDDEN: Final = "******"

# Keys.

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ANYWHERE: Final = re.compile(
    r"passw|passphrase|passcode|secret(?!ar)|credential|jaas|apikey|accesskey|accountkey"
    r"|privatekey|privkey|passkey|sharedkey|authkey|userinfo"
)
"""In any word of a key, and in words that were written together: ``dbpassword``."""
_WHOLE: Final = frozenset(("token", "tokens", "pwd", "sas"))
_LAST: Final = frozenset(
    (
        *("pass", "pw", "sig", "authorization", "cookie", "bearer", "jwt", "creds", "dbpass"),
        *("userpass", "psk"),
    )
)
"""These words tell a secret only as the last of a key: ``db.pass``, not ``pass.through``."""
_ENDS: Final = ("pwd", "token")
_KEYS_OF: Final = (
    *("access", "account", "anthropic", "api", "app", "auth", "consumer", "encryption", "fernet"),
    *("functions", "hmac", "license", "master", "openai", "private", "secret", "shared"),
    *("signing", "ssh", "storage", "subscription"),
)
_PAIRS: Final = frozenset(
    (
        *((kind, "key") for kind in _KEYS_OF),
        *(("user", "info"), ("pass", "word"), ("pass", "phrase"), ("nkey", "seed")),
        *(("basic", "auth"), ("http", "auth"), ("auth", "header")),
    )
)
_ABOUT: Final = frozenset(
    (
        *("algorithm", "class", "count", "enabled", "endpoint", "expiration", "expiry", "file"),
        *("interval", "length", "lifetime", "location", "mode", "path", "period", "provider"),
        *("providers", "required", "size", "timeout", "ttl", "type", "uri", "url"),
    )
)
"""A key that ends so is about a secret, and its value is none: ``secret-file``."""
_COUNTED: Final = frozenset(("max", "min", "num", "n", "total", "prompt", "completion"))
"""Models count tokens: ``max_tokens=512``."""
_IN_QUERIES: Final = frozenset(("auth", "code", "key", "signature"))
"""Last words that name a secret in the query of an address, where nobody else calls them so."""


def is_secret(key: str) -> bool:
    """Whether the value of a key must not be shown."""
    words = [word.lower() for word in _WORDS.findall(key)]
    if not words or words[-1] in _ABOUT or (words[-1] == "ms" and len(words) > 1):
        return False
    if words[-1] == "tokens" and words[0] in _COUNTED:
        return False
    return (
        words[-1] in _LAST
        or any(word in _WHOLE or word.endswith(_ENDS) or _ANYWHERE.search(word) for word in words)
        or any(pair in _PAIRS for pair in pairwise(words))
    )


def _is_query_secret(key: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(key)]
    return is_secret(key) or (bool(words) and words[-1] in _IN_QUERIES)


# Settings.


def redacted(texts: Mapping[str, str]) -> dict[str, str]:
    """Settings as they may be shown: without secrets, and values with a secret in them."""
    return {key: shown_setting(key, text) for key, text in texts.items()}


def shown_setting(key: str, text: str) -> str:
    """The value of a setting, or that it is hidden."""
    has_secret = is_secret(key) or _has_login(text) or without_secrets(text) != text
    return HIDDEN if has_secret else text


# Addresses.

_OPEN_USERS: Final = frozenset(
    (
        *("abfs", "abfss", "adl", "git", "hdfs", "mysql", "postgres", "postgresql", "sftp"),
        *("ssh", "wasb", "wasbs"),
    )
)
"""Schemes whose addresses have a name before the ``@`` that is no secret; elsewhere, a token."""
_WEB: Final = frozenset(("http", "https", "ws", "wss"))
_STORES: Final = frozenset(["file", "ftp", "gs", "s3", "s3a", "s3n"]) | _OPEN_USERS
"""Schemes whose paths may well have an ``@``."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*$")


def login_end(scheme: str, rest: str) -> int:
    """Where the login of an address ends, just after its ``@``; 0: it has none that is secret.

    ``rest`` is what follows ``://``. A password with ``/``, ``?`` or ``#`` in it should have been
    percent-encoded, but people forget that.
    """
    end = rest.rfind("@") + 1
    if not end:
        return 0
    scheme = scheme.lower().rpartition(":")[2].rpartition("+")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, sign, _ = authority.rpartition("@")
    if sign:
        return end if ":" in user or scheme not in _OPEN_USERS else 0
    host, sign, port = authority.partition(":")
    if sign and host and port.isdecimal() and scheme in _WEB:
        return 0  # host and port; the @ is in the path
    if sign:
        return end
    return 0 if scheme in _STORES | _WEB else end


def plain_url(url: str) -> str:
    """An address for people: without login and query."""
    scheme, sign, rest = url.partition("://")
    if not sign:
        return without_secrets(url)
    return _HOOK.sub(_hide_last, f"{scheme}://{rest[login_end(scheme, rest) :].partition('?')[0]}")


def has_stray_login(url: str) -> bool:
    """Whether a login has a sign in it that ends the login, as in ``redis://:pass/word@host``.

    Whoever takes such an address apart takes half a password for a host or a port, and says so.
    """
    authority, *more = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)
    if "@" in authority:
        return authority.count("@") > 1
    port = authority.rpartition("]")[2].partition(":")[2]
    return bool(port) and not port.isdecimal() and "@" in "".join(more)


# Texts.

_END: Final = r"""["'](?:[,;:)\]}>\s]|$)"""
"""The quotation mark after a value."""
_RUN: Final = rf"(?:(?!{_END})\S)"
_QUOTED: Final = r"""[bfru]{0,2}(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_VALUE: Final = rf"(?:{_QUOTED}|\{{[^}}\s]*\}}|{_RUN}+)"
_KEY: Final = r"(?<![\w.\-])[\w.\-]{1,200}"
_LOGIN: Final = re.compile(rf"://((?:(?!://){_RUN})*@)")
_BARE_LOGIN: Final = re.compile(rf"(?:(?<=:)/|(?<![:\w])//)([^\s/@:]*:{_RUN}+@)")
_ORACLE: Final = re.compile(r":(?:thin|oci\d?):([^\s/@]{1,200}/[^\s@]+@)")
_RUNS: Final = re.compile(rf"{_RUN}+")
_QUERY: Final = re.compile(rf"[?&]([\w.\-%]{{1,200}})=((?:(?!{_END})[^\s&#])+)")
_ANY_VALUE: Final = re.compile(_VALUE, re.S)
_QUOTED_VALUE: Final = re.compile(_QUOTED, re.S)
_KEYS: Final = (
    (re.compile(rf"(?<![?&])({_KEY})(?:=(?!=)|%3[Dd])(?=\S)"), False),
    (re.compile(rf"""["']({_KEY})["']\s*:\s*"""), False),
    (re.compile(r"--([\w\-]{1,100})[ \t]+(?![\-\s])"), False),
    (re.compile(r"""["']((?=\w*[.\-])[\w.\-]{2,200})["']\s*,\s*(?=["'bru])"""), False),
    (re.compile(r"""["']((?:[Aa]uthorization|[Cc]ookie))["']\s*,\s*(?=["'bru])"""), False),
    (re.compile(rf"({_KEY})(?:[ \t]+=|=(?=[ \t]))[ \t]*(?![=\s])"), True),
    (re.compile(rf"({_KEY})[ \t]{{0,3}}:[ \t]*(?=\S)"), True),
)
"""What stands before a value; True: code and prose have the same, as in ``bad token: '}'``."""
_HEADER: Final = re.compile(
    r"\b((?:proxy-)?authorization|(?:set-)?cookie)[\"']?\s*[:=]\s*[bru]?[\"']?([^\"'\r\n]+)", re.I
)
_SCHEMED: Final = re.compile(
    r"\b(?:Bearer|Basic)\s+((?=[A-Za-z_\-+/.~]*[\d=])[\w\-+/.~=]{8,})", re.I
)
_PEM: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S
)
_JWT: Final = re.compile(r"(?<![\w\-])(eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*)")
_ISSUED: Final = re.compile(
    r"(?<![\w\-])(?:(?:gh[opsur]_|github_pat_|glpat-|xox[abprs]-|xapp-)[\w\-]{12,}"
    r"|sk-(?:[a-z]{1,10}\d{0,4}-){0,2}[A-Za-z\d]{20,}"
    r"|(?:[sr]k_(?:live|test)|hf|npm)_[A-Za-z\d]{20,}|SG\.[\w\-]{16,}\.[\w\-]{16,}"
    r"|dapi[\da-f]{32}|AIza[\w\-]{30,}|ya29\.[\w\-]{20,}|S[ACNOUX][A-Z2-7]{56}(?!\w))"
)
"""Tokens of services that give them a beginning by which they are known, and seeds of NATS."""
_HOOK: Final = re.compile(
    r"(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks|api\.telegram\.org)"
    r"/([\w/:\-]+)"
)
"""Whoever knows such an address may write to it."""
_SQL: Final = re.compile(
    r"\b(?:password|identified(?: with [\w']{1,50})? by)[ \t]+'((?:[^'\\]|\\.|'')*)'", re.I
)
_ESCAPED: Final = re.compile(
    r"""\\["']([\w.\-]{1,200})\\["']\s*:\s*\\["']((?:[^\\"']|\\(?!["']))+)"""
)
"""JSON within a text of JSON, or within the repr of one."""
_ELEMENT: Final = re.compile(r"<(?:[\w\-]{1,50}:)?([\w.\-]{1,100})(?: [^<>]{0,200})?>([^<>\s]+)</")
_NO_VALUES: Final = frozenset(
    ("None", "null", "true", "false", "True", "False", "str", "bytes", "int", "''", '""')
)
_STRONG: Final = re.compile(r"passw|passphrase|secret(?!ar)|pwd|api.?key|access.?key|credential")
_HINT: Final = re.compile(
    r"[=@]|://|:\s*\S|--|PRIVATE KEY|bearer|basic|eyJ|,|</|gh[opsur]_|github_pat|glpat-|xox|xapp-"
    r"|sk-|[sr]k_|hf_|npm_|SG\.|dapi|AIza|ya29|\bS[ACNOUX][A-Z2-7]{56}|password\s+'|identified|%3d"
    r"|slack\.com|discord|telegram",
    re.I,
)


def without_secrets(text: str) -> str:
    """A text for people, with ``******`` in place of every secret that is recognised in it."""
    if not _HINT.search(text):
        return text
    text = _PEM.sub(_hide_last, text)
    text = _LOGIN.sub(_hide_login, text)
    text = _RUNS.sub(_hide_bare_logins, text)
    text = _QUERY.sub(_hide_query, text)
    text = _HEADER.sub(_hide_last, text)
    text = _SCHEMED.sub(_hide_last, text)
    text = _JWT.sub(_hide_last, text)
    text = _ISSUED.sub(HIDDEN, text)
    text = _HOOK.sub(_hide_last, text)
    text = _SQL.sub(_hide_last, text)
    text = _ESCAPED.sub(_hide_value, text)
    text = _ELEMENT.sub(_hide_value, text)
    for keys, is_common in _KEYS:
        text = _without_values(text, keys, is_common)
    return text


def shown_cause(error: BaseException) -> BaseException | None:
    """An error as the cause of another; None: it shows a secret to whoever prints causes."""
    text = str(error)
    return error if without_secrets(text) == text else None


def _without_values(text: str, keys: re.Pattern[str], is_common: bool) -> str:
    parts, at = [], 0
    for found in keys.finditer(text):
        key, start = found[1], found.end()
        if found.start() < at or not is_secret(key):
            continue
        # ``token = "…"`` is a line of code with a secret in it; ``token = next(tokens)`` has none.
        # A key with a hyphen is a header or an option.
        is_literal = is_common and "-" not in key and not _STRONG.search(key.lower())
        if is_literal and "=" not in found[0]:
            continue
        value = (_QUOTED_VALUE if is_literal else _ANY_VALUE).match(text, start)
        if value is None or value[0].rstrip(",;)]}") in _NO_VALUES:
            continue
        # The quotation marks stay, so that what is around reads on.
        mark = value[0][-1] if _QUOTED_VALUE.fullmatch(value[0]) else ""
        parts += [text[at:start], mark, HIDDEN, mark]
        at = value.end()
    return "".join([*parts, text[at:]])


def _hide_last(match: re.Match[str]) -> str:
    number = match.re.groups
    start, end = (at - match.start() for at in match.span(number))
    return f"{match[0][:start]}{HIDDEN}{match[0][end:]}"


def _hide_bare_logins(run: re.Match[str]) -> str:
    """Every login that begins before the last ``@`` ends, so that no run is scanned many times."""
    logins, sign, rest = run[0].rpartition("@")
    if not sign:
        return run[0]
    logins = _BARE_LOGIN.sub(_hide_before_at, f"{logins}@")
    return _ORACLE.sub(_hide_before_at, logins) + rest


def _hide_before_at(match: re.Match[str]) -> str:
    return f"{match[0][: match.start(1) - match.start()]}{HIDDEN}@"


def _hide_login(match: re.Match[str]) -> str:
    scheme = _SCHEME.search(match.string[max(0, match.start() - 40) : match.start()])
    end = login_end(scheme[0] if scheme else "", match[1])
    return f"://{HIDDEN}@{match[1][end:]}" if end else match[0]


def _hide_query(match: re.Match[str]) -> str:
    return _hide_last(match) if _is_query_secret(match[1]) else match[0]


def _hide_value(match: re.Match[str]) -> str:
    return _hide_last(match) if is_secret(match[1]) else match[0]


_BARE: Final = re.compile(
    r"(?!mailto:)(?:(?:\w+:)?//?[^\s/@]*:[^\s@]+|[^\s/@:]*:(?!/)[^\s@]+)@(?!sha\d)"
)


def _has_login(text: str) -> bool:
    """Whether a value that is meant to be an address has a password, however it is written."""
    scheme, sign, rest = text.partition("://")
    if sign:
        return login_end(scheme, rest) > 0
    return _BARE.match(text) is not None
