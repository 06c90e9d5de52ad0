"""`potluck` in a warm process: python tests/lab/potluck_worker.py train --max-steps 2."""

from potluck.cli import main

main()
