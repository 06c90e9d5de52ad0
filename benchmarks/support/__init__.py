"""What several benchmarks share: lab machines, gates and workers, and the programs that benchmarks start there."""
