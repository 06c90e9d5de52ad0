"""Figures that we publish, each by one command."""
