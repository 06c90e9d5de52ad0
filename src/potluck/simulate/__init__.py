"""Runs on paper: the real planner and replanner in virtual time, on machines and links that come from profiles.

`simulation.simulate` is the entry point. It writes the events of a run, so that reports, comparisons and the dashboard
show a simulated run as they show a real one. Nothing is trained here, and nothing here imports torch.
"""
