"""How a value becomes text or bytes and back: CSV, JSON, plain schemas."""
