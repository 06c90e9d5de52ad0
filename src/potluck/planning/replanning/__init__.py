"""Replanning as one pure reducer: when workers check their plan, how they change it, and which machines they bench.

`replanner.Replanner` is the entry point. No files, no clock and no torch here: every worker comes to the same plan
because every worker computes the plan from the same numbers.
"""
