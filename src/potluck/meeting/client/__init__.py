"""Requests of commands and joined machines to a host."""
