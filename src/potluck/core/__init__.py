"""Words as types, errors with fixes, run settings, and the only reader of the environment. No torch."""
