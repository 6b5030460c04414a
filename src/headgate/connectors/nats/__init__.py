"""Streams of NATS JetStream as sources and sinks, through nats-py."""
