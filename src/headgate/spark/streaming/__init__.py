"""Structured Streaming both ways: streaming queries feed a job's inputs and read its outputs."""
