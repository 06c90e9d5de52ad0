import pytest
import torch
from torch import nn

import potluck
from potluck.engine.compute.precision import Precision
from potluck.events.log import read_records
from potluck.events.types import StepCommitted
from tests.training import largest_difference, make_data, make_mlp, train

FLOAT32 = {"data": make_data(48, dtype=torch.float32), "epochs": 3}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_mixed_precision_trains_close_to_full_precision(workplace, precision):
    full, _ = train("full", model=make_mlp(torch.float32), **FLOAT32)
    mixed, _ = train("mixed", model=make_mlp(torch.float32), mixed_precision=precision, **FLOAT32)
    assert 0 < largest_difference(full, mixed) < 0.1


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_forward_is_narrow_inside_and_float32_outside(workplace, precision):
    seen = []

    class Spy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(12, 3)

        def forward(self, inputs):
            logits = self.linear(inputs)
            seen.append(logits.dtype)
            return {"logits": logits, "both": (logits, [logits])}

    model = Spy()
    with potluck.start("a", device="cpu", mixed_precision=precision) as run:
        prepared, _ = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        output = prepared(torch.ones(2, 12))
    assert seen == [{"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]]
    assert output["logits"].dtype == output["both"][0].dtype == output["both"][1][0].dtype == torch.float32


def test_micro_batches_share_one_scale_and_one_unscaling(workplace):
    whole, _ = train("whole", model=make_mlp(torch.float32), mixed_precision="fp16", **FLOAT32)
    pieces, _ = train("pieces", model=make_mlp(torch.float32), mixed_precision="fp16", micro_batch=3, **FLOAT32)
    assert largest_difference(whole, pieces) < 0.02


def test_an_overflow_changes_nothing_lowers_the_scale_and_is_told(workplace):
    model = make_mlp(torch.float32)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(inner, step_size=1, gamma=0.5)
    with potluck.start("a", device="cpu", mixed_precision="fp16") as run:
        prepared, optimizer, scheduler = run.prepare(model, inner, schedule)
        loader = run.loader(FLOAT32["data"], global_batch=16)
        for _ in run.epochs(1):
            for inputs, targets in loader:
                before = model[0].weight.clone()
                factor = float("inf") if run.step == 1 else 1.0
                run.backward(nn.functional.cross_entropy(prepared(inputs), targets) * factor)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                assert torch.equal(before, model[0].weight) == (factor != 1.0)
        assert inner.param_groups[0]["lr"] == 0.1 * 0.5**2
    [path] = (workplace / "experiments" / "a" / "events").iterdir()
    steps = [record.event for record in read_records(path) if isinstance(record.event, StepCommitted)]
    assert [step.skipped for step in steps] == [False, True, False]


def test_a_spoiled_step_may_be_unscaled_again():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    precision = Precision("fp16", torch.device("cpu"))
    for _ in range(2):
        precision.scale(model(torch.ones(1, 2)).sum()).backward()
        precision.unscale(optimizer, precision.loss_scale)
        assert model.weight.grad.tolist() == [[1.0, 1.0]]
        precision.reset()
        optimizer.zero_grad()


def test_gradients_are_unscaled_by_the_groups_scale():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    precision = Precision("fp16", torch.device("cpu"))
    precision.scale(torch.ones(()))  # the scale is made with its first use
    model.weight.grad = torch.full_like(model.weight, 512.0)
    precision.unscale(optimizer, 256.0)
    assert model.weight.grad.tolist() == [[2.0, 2.0]]
    assert precision.loss_scale == 256.0
