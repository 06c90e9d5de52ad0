"""From one committed step to the next: gradients into parameters, stops, checkpoints at the right moments."""
