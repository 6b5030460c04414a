"""Records posted to an HTTP endpoint, through urllib3."""
