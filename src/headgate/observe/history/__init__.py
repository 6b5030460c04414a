"""Jobs that have ended: their archives, and the server that shows them."""
