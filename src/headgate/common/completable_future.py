"""Answers that may take a while, where PyFlink has them."""

from headgate.api.job import CompletableFuture

__all__ = ["CompletableFuture"]
