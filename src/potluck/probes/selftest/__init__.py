"""The self-test's worker process: trains, times and exchanges as the orders on its stdin say."""
