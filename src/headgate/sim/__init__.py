"""The same core under a virtual clock, a virtual network and seeded faults, in one thread."""
