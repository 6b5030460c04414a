"""The driver's side of a job: registration, runs, results, the job's endpoint for commands."""
