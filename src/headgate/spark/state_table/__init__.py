"""State of checkpoints as a table of Spark: `spark.read.format("headgate-state")`."""
