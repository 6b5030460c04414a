"""Spans of time as a user writes them, such as ``Time.seconds(5)``, in whole milliseconds."""

from headgate.base.errors import PlanInvalid


def whole_ms(span: object, caller: str) -> int:
    """Of a ``Time`` or a ``Duration``: anything that can say how many milliseconds it has."""
    for name in ("to_milliseconds", "to_millis"):
        convert = getattr(span, name, None)
        if convert is not None and not isinstance(span, type):
            span_ms = convert()
            if type(span_ms) is int:
                return span_ms
    raise PlanInvalid(
        f"{caller} was given {span!r}; give a span of time, for instance Time.seconds(5)"
    )


def positive_ms(span: object, caller: str) -> int:
    """The same; it must be a millisecond or more."""
    span_ms = whole_ms(span, caller)
    if span_ms < 1:
        raise PlanInvalid(f"{caller} was given {span_ms} ms; give a millisecond or more")
    return span_ms
