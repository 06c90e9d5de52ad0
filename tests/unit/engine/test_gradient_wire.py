"""Sums of a step whose process group was closed in the middle: they end, and the step is not committed."""

from datetime import timedelta

import pytest
import torch
from torchft.process_group import ProcessGroupGloo

from potluck.engine.group.gradient_wire import GradientWire


class Manager:
    """Keeps the step's first error, as torchft's does."""

    def __init__(self):
        self.error = None

    def errored(self):
        return self.error

    def report_error(self, error):
        self.error = error

    def wait_quorum(self):
        pass


@pytest.mark.parametrize("code", ["exact", "fp16", "int8", "int4"])
def test_a_closed_group_spoils_the_step_and_not_the_script(code):
    manager, group = Manager(), ProcessGroupGloo(timeout=timedelta(seconds=1))
    group.backend = "gloo"
    wire = GradientWire(lambda: manager, group, lambda: timedelta(seconds=1), code)
    gradients = torch.ones(300)
    assert wire.sum(gradients, is_last=True).wait() is gradients
    assert "not initialized" in str(manager.error)
