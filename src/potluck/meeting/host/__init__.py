"""The host's process: admission, the roster, the runs, and the orders for each machine."""
