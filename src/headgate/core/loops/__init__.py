"""User functions written into the loops that call them, so that a record costs no call."""
