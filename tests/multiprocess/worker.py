"""A training worker for tests: runs scenarios one after the other, and saves the results."""

import json
import os
import time

import torch
from torch import nn

import potluck
from tests.training import NUM_CLASSES, NUM_FEATURES, make_data, make_mlp, make_optimizer


class SmallTransformer(nn.Module):
    """Attention over the features as a sequence of four tokens."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0, batch_first=True)
        self.embed = nn.Linear(NUM_FEATURES // 4, 8)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(8, NUM_CLASSES)

    def forward(self, inputs):
        return self.head(self.encoder(self.embed(inputs.unflatten(1, (4, -1)))).mean(1))


class NormalisedMlp(nn.Sequential):
    """BatchNorm comes first, so that its statistics depend on the samples alone, not on what has been learned."""

    def __init__(self):
        super().__init__(
            nn.BatchNorm1d(NUM_FEATURES), nn.Linear(NUM_FEATURES, 16), nn.ReLU(), nn.Linear(16, NUM_CLASSES)
        )


def make_model(kind):
    if kind == "unseeded mlp":
        torch.seed()
        return nn.Sequential(nn.Linear(NUM_FEATURES, 16), nn.ReLU(), nn.Linear(16, NUM_CLASSES)).double()
    if kind == "mlp":
        return make_mlp()
    torch.manual_seed(4)
    return {"transformer": SmallTransformer, "batchnorm": NormalisedMlp}[kind]().double()


def note_used_samples(run, used, path):
    """Write which samples this worker brings to a step, before its gradients leave: then the others may commit it."""
    announce = run._parts.group.announce

    def announce_and_note(*args, **kwargs):
        part = announce(*args, **kwargs)
        with open(path, "a") as file:  # noqa: PTH123
            file.write(json.dumps([part.step, run._parts.group.quorum_id, used if part.num_samples else []]) + "\n")
        used.clear()
        return part

    run._parts.group.announce = announce_and_note


def train(scenario):
    os.environ.update(scenario.get("environment", {}))
    dtype = getattr(torch, scenario.get("dtype", "float64"))
    model = make_model(scenario.get("model", "mlp")).to(dtype)
    inner = make_optimizer(scenario.get("optimizer", "sgd"), model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(inner, T_max=50)
    inputs, targets = make_data(scenario.get("num_samples", 100), dtype=dtype).tensors
    data = torch.utils.data.TensorDataset(inputs, targets, torch.arange(len(inputs)))
    with potluck.start(
        scenario["run"], device=scenario.get("device", "cpu"), seed=5, **scenario.get("options", {})
    ) as run:
        prepared, optimizer, scheduler = run.prepare(model, inner, schedule)
        loader = run.loader(
            data, global_batch=scenario.get("global_batch", 16), num_workers=scenario.get("num_workers", 0)
        )
        scores, used = [], []
        if "ids" in scenario:
            note_used_samples(run, used, scenario["ids"])
        if "loss_scale" in scenario:
            run._parts.precision.scale(torch.ones(()))  # the scale is made with its first use
            run._parts.precision._scaler.update(scenario["loss_scale"])

        def measure(inputs, targets):
            return {"loss": nn.functional.cross_entropy(prepared(inputs), targets, reduction="none")}

        for _ in run.epochs(scenario.get("epochs", 3), max_steps=scenario.get("max_steps")):
            for inputs, targets, ids in loader:
                loss = nn.functional.cross_entropy(prepared(inputs), targets)
                used += ids.tolist()
                run.backward(loss)
                if scenario.get("clip"):
                    run.clip_gradients(scenario["clip"])
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                pauses = scenario.get("pauses", [])
                if not os.path.exists(scenario.get("no_pause", "")):  # noqa: PTH110
                    time.sleep(pauses[run.step] if run.step < len(pauses) else scenario.get("pause_s", 0.0))
            scores.append(run.evaluate(make_data(37, dtype=dtype), measure)["loss"])
        state = {name: value.cpu().clone() for name, value in model.state_dict().items()}
        torch.save({"state": state, "scores": scores, "step": run.step}, scenario["result"])


def work(scenarios):
    """The whole life of a worker process."""
    torch.set_num_threads(1)
    for each in json.loads(scenarios):
        train(each)
