"""What a run came to: accounts and comparisons, from its events alone. No torch."""
