"""What happens in a run, as frozen events in crash-safe files, and the state they add up to. No torch."""
