"""The data of the training loop: batches of this worker's share of every step; the loader's loop also retries steps."""
