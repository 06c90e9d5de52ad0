"""Train one PyTorch model on all the machines you have."""

__version__ = "0.1.0"
