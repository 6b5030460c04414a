"""Named inputs and outputs of a job, which Spark's streaming queries write and read."""
