"""Shared by all packages: run states, errors with fixes, settings, and the only reader of the environment. No torch."""
