"""Shared words: ids, events, elements, errors, settings. Imports nothing of Headgate above it."""
