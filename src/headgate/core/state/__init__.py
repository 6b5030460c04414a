"""Keyed state: values that records leave, by key."""
