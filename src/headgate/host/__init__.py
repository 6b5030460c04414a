"""Threads, sockets, files and the real clock: carries out what core decides."""
