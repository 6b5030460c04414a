"""The state backend on RocksDB: keyed state larger than memory, its snapshots and increments."""
