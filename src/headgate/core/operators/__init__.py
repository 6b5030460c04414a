"""Operators: what a chain is made of, one module for each kind."""
