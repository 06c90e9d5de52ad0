"""Checks: facts in, findings with fixes out. Nothing here imports torch."""
