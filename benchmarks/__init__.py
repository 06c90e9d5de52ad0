"""Measurements, run as `python -m benchmarks.NAME`."""

import os

os.environ.setdefault("POTLUCK_TUNING", "0")  # the engine is compared with plain PyTorch, not PyTorch with itself
