"""The checks, one file a theme."""
