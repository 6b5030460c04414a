"""Whole jobs in the simulator: real plans, chains and tasks, pure functions, and a reference."""
