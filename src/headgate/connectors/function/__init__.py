"""A user's ``SourceFunction`` on a thread of its own."""
