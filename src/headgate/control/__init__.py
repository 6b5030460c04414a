"""The machines of the driver: who runs where, how far the job has come, how it ends."""
