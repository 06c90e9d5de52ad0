"""Measuring the links between machines with real ports, real bytes and a real all-reduce."""
