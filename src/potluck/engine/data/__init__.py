"""What the training loop reads: batches of this worker's part of every step; the loader's loop is also the retry."""
