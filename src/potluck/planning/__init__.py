"""Decides each worker's share of the global batch, and which machines are benched: pure functions. No torch."""
