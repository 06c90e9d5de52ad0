"""Files between machines: scripts go to the machines; events, logs and checkpoints go to the host."""
