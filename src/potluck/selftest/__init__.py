"""The self-test: small trainings that must give the same result on every device and backend that a machine has."""
