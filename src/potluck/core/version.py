"""The version of Potluck, in the one place that everything reads."""

__version__ = "0.1.0"

FROM_THE_SAME_CLONE = (
    "check out the commit that the other machines were installed from in this machine's clone of Potluck (or copy "
    "their clone), then in it: pip install ."
)
"""How a machine gets the host's version: Potluck is installed from its source."""
