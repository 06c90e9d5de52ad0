"""Other programs for training over slow links, in the same lab on the same model and text as benchmarks.slow_links."""
