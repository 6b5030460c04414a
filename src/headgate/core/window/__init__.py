"""Windows: which records belong together in time, when their result is sent, and when it ends."""
