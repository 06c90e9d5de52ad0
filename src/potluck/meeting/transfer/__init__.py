"""What travels as files: scripts to the machines, events, logs and checkpoints to the host."""
