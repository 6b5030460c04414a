"""Sources and sinks that meet the world: files, sockets, generators, the terminal."""
