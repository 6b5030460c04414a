"""What records leave behind: values by key."""
