"""The size of the self-test's training problem, which its workers and its judge must agree on."""

GLOBAL_BATCH = 16
NUM_SAMPLES = 54  # not a multiple of the global batch: the last step of an epoch is a smaller one
STEPS_PER_EPOCH = -(-NUM_SAMPLES // GLOBAL_BATCH)
