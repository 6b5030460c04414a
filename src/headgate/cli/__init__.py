"""The `headgate` command: what a person types, and the exit codes a script reads."""
