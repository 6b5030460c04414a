"""Who moves a record: the environment that tasks are set up in."""
