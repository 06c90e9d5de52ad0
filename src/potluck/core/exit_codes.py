"""Exit codes of commands and scripts, beside 0, 1 for errors and 128 + number for signals."""

DIVERGED = 3  # training came to its end, but its loss had diverged
