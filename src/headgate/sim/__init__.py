"""The simulator: the core with a virtual clock, a virtual network and faults, in one thread."""
