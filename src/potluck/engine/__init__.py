"""Training: the run, its data position, gradient weighting, commit, checkpoints."""
