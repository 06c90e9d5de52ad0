"""Facts about this computer. Works where torch is missing or broken: only a subprocess imports torch."""
