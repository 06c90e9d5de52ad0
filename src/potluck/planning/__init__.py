"""Who takes how much of a global batch: pure functions. No torch."""
