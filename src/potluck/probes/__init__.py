"""Programs started with `python -m` that need torch: what it is, how an all-reduce and all links go."""
