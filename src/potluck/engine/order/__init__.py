"""Which samples belong to a step, as a function of the committed step alone; imports nothing else of the engine."""
