"""Benchmarks: each prints what it measured and against what, both taken in the same run."""
