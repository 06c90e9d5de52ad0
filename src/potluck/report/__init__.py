"""Reports on runs: views, accounts, comparisons and plots, from event files alone. No torch."""
