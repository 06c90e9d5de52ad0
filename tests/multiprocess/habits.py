"""A worker that trains by habits, one after the other."""

import json
import os

import torch

from tests.habits import train_by_habit


def work_by_habit(scenarios):
    """The whole life of a worker process."""
    torch.set_num_threads(1)
    for scenario in json.loads(scenarios):
        os.environ.update(scenario.get("environment", {}))
        parameters, step = train_by_habit(
            scenario["habit"], scenario["run"], options=scenario.get("options"), **scenario.get("wishes", {})
        )
        state = {str(number): parameter for number, parameter in enumerate(parameters)}
        torch.save({"state": state, "step": step}, scenario["result"])
