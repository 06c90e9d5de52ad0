"""The version of Potluck, in the one place that everything reads."""

__version__ = "0.1.0"

FROM_THE_HOST = "paste the line for a machine without Potluck that potluck host prints, on this machine"
"""How a machine gets the host's version of Potluck."""
