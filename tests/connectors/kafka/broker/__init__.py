"""A small, strict broker that speaks Kafka's protocol, for tests of exactly once."""
