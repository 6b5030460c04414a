"""What users implement and are handed: functions, contexts, state, windows, time, metrics."""
