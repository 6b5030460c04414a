"""Sockets and threads of the data exchange and of control connections: loop, links, baton."""
