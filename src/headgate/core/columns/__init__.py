"""Columns: streams whose records are Arrow batches, and what operators do with whole batches."""
