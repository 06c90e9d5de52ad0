"""The version of Potluck, in the one place that everything reads."""

__version__ = "0.1.0"
