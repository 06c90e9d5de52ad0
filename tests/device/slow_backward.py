"""A worker whose layers take long in backward, for the question whether gradients are exchanged meanwhile."""

import json
import os
import time

import torch
from torch import nn

import potluck
from potluck.engine.group.staging import HostStaging

NUM_LAYERS, WIDTH, LAYER_S = 6, 512, 0.03  # a layer's gradient is 1 MB: a bucket of its own
NUM_STEPS = 24


class _Slow(torch.autograd.Function):
    @staticmethod
    def forward(_, values):
        return values.view_as(values)

    @staticmethod
    def backward(_, gradient):
        time.sleep(LAYER_S)
        return gradient


class SlowLayer(nn.Linear):
    def forward(self, inputs):
        return super().forward(_Slow.apply(inputs))


def _waiting_if(is_wanted):
    """HostStaging.sum, after which backward waits for the bucket's copies and exchange before it goes on."""
    begin = HostStaging.sum

    def begin_and_wait(staging, tensor, **which):
        done = begin(staging, tensor, **which)
        if is_wanted():
            done.wait()
        return done

    return begin_and_wait


def work(scenarios):
    """Seconds of each backward pass, by whether it waited for every bucket."""
    torch.set_num_threads(1)
    (scenario,) = json.loads(scenarios)
    os.environ.update(scenario.get("environment", {}))
    torch.manual_seed(1)
    model = nn.Sequential(*(SlowLayer(WIDTH, WIDTH) for _ in range(NUM_LAYERS)))
    seconds = {True: [], False: []}
    with potluck.start(scenario["run"], device=scenario["device"], **scenario.get("options", {})) as run:
        HostStaging.sum = _waiting_if(lambda: run.step % 2 == 1)
        prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-3))
        data = torch.utils.data.TensorDataset(torch.randn(4 * NUM_STEPS, WIDTH))
        for _ in run.epochs(1):
            for (inputs,) in run.loader(data, global_batch=4):
                loss = prepared(inputs.requires_grad_()).square().mean()
                began_s = time.perf_counter()
                run.backward(loss)
                if run.step >= 4:  # the first steps set things up
                    seconds[run.step % 2 == 1].append(time.perf_counter() - began_s)
                optimizer.step()
                optimizer.zero_grad()
    torch.save({"beside": seconds[False], "after": seconds[True]}, scenario["result"])
