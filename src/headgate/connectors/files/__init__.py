"""Files as sources and sinks: lines of text, CSV, JSON and Parquet, exactly once."""
