"""Models and datasets that come with Potluck, and the built-in trainer."""
