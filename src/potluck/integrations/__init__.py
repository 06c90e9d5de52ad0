"""Adapters for tools that have a training loop of their own. Each needs its tool, and `import potluck` needs none."""
