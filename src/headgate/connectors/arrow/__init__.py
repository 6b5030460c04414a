"""Records as Arrow batches and back, for connectors that move columns."""
