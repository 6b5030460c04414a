"""Ordinary programs on Headgate, Java Flink and Bytewax, in turns."""
