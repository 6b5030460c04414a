"""Sources that make their records: sequences of numbers, functions of an index."""
