"""Streams of Redis as sources and sinks, through redis-py."""
