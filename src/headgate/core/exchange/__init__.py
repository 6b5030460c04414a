"""The wire, as bytes: frames, handshake, credit sessions, the two ends of a connection."""
