"""DataFrames as input and output of a job: only programs that use them import this package."""
