"""What this machine takes for a step, where the time goes, what fits into memory, and how fast its links are."""
