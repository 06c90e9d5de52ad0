"""What the server of forked test processes imports before any of them starts."""

import torch._dynamo  # an optimizer imports it when it is made

import potluck.cli
import potluck.cli.display
import potluck.engine.group.launch
import potluck.engine.group.switching
import potluck.engine.start
import potluck.workloads.trainer
import tests.multiprocess.habits
import tests.multiprocess.worker

__all__ = ["potluck", "tests", "torch"]
