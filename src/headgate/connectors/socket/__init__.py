"""Lines of text from a server's socket."""
