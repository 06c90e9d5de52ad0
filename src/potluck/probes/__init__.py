"""Programs started with `python -m` because they need torch: they describe torch, try an all-reduce, measure links."""
