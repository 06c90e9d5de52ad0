"""Exit codes of commands and scripts besides 0, 1 for errors, and 128 + the signal's number."""

DIVERGED = 3  # training finished, but its loss had diverged
STOPPED = 130  # by Ctrl-C or potluck stop: 128 + SIGINT
