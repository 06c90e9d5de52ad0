"""The meeting point: a host that machines join once, and runs that start on all of them."""
