"""Which samples a step owns, as a function of the committed step alone; imports nothing of the engine."""
