"""The events of a run: frozen types, crash-safe files that hold events, and the state they add up to. No torch."""
