"""Predicates for retry strategies, where PyFlink has them."""

from headgate.functions.async_functions import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]
