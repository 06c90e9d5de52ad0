"""A training worker for tests: runs scenarios one after the other, and saves the results."""

import json
import os
import time

import torch
from torch import nn

import potluck
from potluck.engine.compute import outer_step
from potluck.engine.group import round_terms, rounds
from potluck.engine.group.gradients import GradientExchange
from potluck.engine.group.leased import LeasedGroup
from potluck.engine.group.rounds import RoundsGroup
from potluck.engine.order.position import Slice
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


class Adapted(nn.Module):
    """A frozen base and an adapter, as fine-tuning has them; `teacher` needs no gradient, but the script moves it."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(NUM_FEATURES, 64).requires_grad_(False)
        self.down, self.up = nn.Linear(NUM_FEATURES, 2, bias=False), nn.Linear(2, 64, bias=False)
        self.head = nn.Linear(64, NUM_CLASSES)
        self.teacher = nn.Linear(64, NUM_CLASSES).requires_grad_(False)

    def forward(self, inputs):
        if self.training:
            for mine, its in zip(self.teacher.parameters(), self.head.parameters(), strict=True):
                mine.data.mul_(0.5).add_(0.5 * its.data)
        return self.head(self.base(inputs) + self.up(self.down(inputs)))


def make_model(kind):
    if kind == "adapted to another base":
        model = make_model("adapted")
        torch.nn.init.normal_(model.base.weight)
        return model
    if kind == "unseeded mlp":
        torch.seed()
        return nn.Sequential(nn.Linear(NUM_FEATURES, 16), nn.ReLU(), nn.Linear(16, NUM_CLASSES)).double()
    if kind == "mlp":
        return make_mlp()
    torch.manual_seed(4)
    return {"transformer": SmallTransformer, "batchnorm": NormalisedMlp, "adapted": Adapted}[kind]().double()


def note_used_samples(run, used, path):
    """Write which samples this worker brings to a step or a round, before its numbers leave: then others may commit it.

    `used`: the samples that the script has really trained on since the last commit. Those of a round that this worker
    leaves do not count; after a failed exchange they are brought again.
    """
    group, counted = run._parts.group, []
    begin, commit, commit_alone = GradientExchange.begin, group.commit, LeasedGroup.commit

    def note(step, brought):
        with open(path, "a") as file:  # noqa: PTH123
            file.write(json.dumps([step, group.quorum_id, brought]) + "\n")

    def begin_and_note(exchange, contribution, *args):
        if exchange.wire._group is exchange.wire._whole:  # not inside an island
            order, step = run._progress.position.order, contribution.step
            slices = [Slice(step, *piece) for piece in contribution.pieces]
            brought = [index for part in slices for index in order.indices(part).tolist()]
            assert not brought or set(used) <= set(brought)  # the leader of an island brings the others' samples too
            note(step, brought)
        return begin(exchange, contribution, *args)

    def note_and_commit(alone):
        note(alone._part.step, list(used))
        return commit_alone(alone)

    def commit_and_forget():
        was_in_round, moves = group.round.is_open, group.round.moves
        committed = commit()
        if not group.round.is_open or not was_in_round:
            used.clear()
            counted.clear()
        elif moves:
            counted[:] = used
        else:  # an island has lost a worker: this local step does not count
            used[:] = counted
        return committed

    GradientExchange.begin, group.commit, LeasedGroup.commit = begin_and_note, commit_and_forget, note_and_commit
    leave = RoundsGroup.leave_round

    def leave_and_forget(rounds):
        if rounds.open_round is not None:
            used.clear()
            counted.clear()
        leave(rounds)

    RoundsGroup.leave_round = leave_and_forget


def change_outer_step(rate, momentum, code):
    """Make rounds what the law about them speaks of."""
    outer_step._RATE = rate
    rounds.outer_momentum = lambda _: momentum
    round_terms.code_of = lambda _: code


def stray(run, model):
    """Give this worker a state and a history of its own, as if it had committed a step that the others made again."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    run._parts.group._connection.model.committed(run.step, 0, ["only this one"])


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
        if "pass_s" in scenario:
            model.register_forward_pre_hook(lambda *_: time.sleep(scenario["pass_s"]))
        scores, used = [], []
        if "ids" in scenario:
            note_used_samples(run, used, scenario["ids"])
        if "outer" in scenario:
            change_outer_step(**scenario["outer"])
        if "loss_scale" in scenario:
            run._parts.precision.scale(torch.ones(()))  # the scale is made with its first use
            run._parts.precision._scaler.update(scenario["loss_scale"])

        def measure(inputs, targets):
            return {"loss": nn.functional.cross_entropy(prepared(inputs), targets, reduction="none")}

        for _ in run.epochs(scenario.get("epochs", 3), max_steps=scenario.get("max_steps")):
            for inputs, targets, ids in loader:
                loss = nn.functional.cross_entropy(prepared(inputs), targets)
                used += ids.tolist() if run._progress.open_step.in_hand else []
                run.backward(loss)
                if scenario.get("clip"):
                    run.clip_gradients(scenario["clip"])
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                if run.step >= scenario.get("stray_at", run.step + 1) and not run._parts.group.round.is_open:
                    stray(run, model)
                    del scenario["stray_at"]
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
