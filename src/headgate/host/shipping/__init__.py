"""What travels between the driver and the workers: code, orders, failures."""
