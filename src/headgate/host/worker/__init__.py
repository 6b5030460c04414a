"""A worker process: the task manager, the tasks it deploys, and how both end."""
