"""What a user writes: environments, streams, functions, types. It yields a plan, runs nothing."""
