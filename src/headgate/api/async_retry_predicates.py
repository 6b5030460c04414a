"""Predicates for retry strategies, ready-made; bind further arguments with ``functools.partial``.

::

    partial(async_retry_predicates.exception_type_predicate, expected_error_type=TimeoutError)
"""


def empty_result_predicate(result: list[object] | None) -> bool:
    """The call has found nothing."""
    return not result


def has_exception_predicate(error: BaseException | None) -> bool:
    """The call has failed, however."""
    return error is not None


def exception_type_predicate(
    error: BaseException | None, expected_error_type: type[BaseException]
) -> bool:
    """The call has failed with an error of this type."""
    return isinstance(error, expected_error_type)
