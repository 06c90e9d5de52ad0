"""Admission and reachability of machines: token, proof, invitation, addresses. Imports neither host nor agent."""
