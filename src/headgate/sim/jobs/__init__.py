"""Whole jobs in the simulator: real plans, chains, tasks and drivers, and a storage in memory."""
