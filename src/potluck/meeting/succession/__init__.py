"""What makes the host replaceable: its term, votes about it, and copies of its state on other machines."""
