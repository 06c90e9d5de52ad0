"""Measures how long a step takes on this machine and where the time goes, what fits into memory, and link speeds."""
