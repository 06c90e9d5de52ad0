"""This worker's device and how the model computes on it."""
