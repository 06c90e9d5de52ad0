"""Frozen parameters: their digests stand for them, unless a script changes them after all."""

import copy
from datetime import timedelta

import pytest
import torch
from torch import nn

from potluck.core.errors import CheckpointError, GroupError
from potluck.engine.checkpoints.state import FORMAT, FORMAT_WITH_FROZEN, EpochSoFar, TrainingState
from potluck.engine.compute.frozen import FrozenParameters, FrozenPart, without
from potluck.engine.compute.precision import Precision
from potluck.engine.compute.tensor_bytes import digest_of
from potluck.engine.group.state_transfer import StateExchange
from potluck.engine.order.position import DataOrder

ORDER = DataOrder(10, 2, seed=0)


def make_model(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(40, 30), nn.BatchNorm1d(30), nn.Linear(30, 3))
    model[0].requires_grad_(False)
    return model


def training_of(model):
    training = TrainingState(Precision("no", torch.device("cpu")), models=[model])
    training.optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1))
    return training


def capture(training):
    return training.capture(3, ORDER, EpochSoFar())


def test_a_state_has_trained_parameters_buffers_and_digests():
    state = capture(training_of(make_model()))
    assert set(state["model"]) == {f"1.{name}" for name in make_model()[1].state_dict()} | {"2.weight", "2.bias"}
    assert state["frozen"].keys() == {"0.weight", "0.bias"}
    assert state["format"] == FORMAT_WITH_FROZEN
    assert capture(training_of(nn.Linear(2, 2)))["format"] == FORMAT


def test_it_is_restored_on_the_same_base_only():
    trained = training_of(make_model())
    nn.init.ones_(trained.models[0][2].weight)
    state = copy.deepcopy(capture(trained))
    fresh = training_of(make_model())
    fresh.restore(state)
    assert all(map(torch.equal, fresh.model.state_dict().values(), trained.model.state_dict().values()))
    with pytest.raises(CheckpointError, match=r"frozen parameter 0\.(weight|bias) is not the one that the run began"):
        training_of(make_model(seed=1)).restore(state)


def test_of_several_models_each_has_its_own_names():
    def several(seed):
        training = training_of(make_model(seed))
        training.models.append(make_model(seed + 1))
        return training

    state = copy.deepcopy(capture(several(0)))
    assert state["frozen"].keys() == {"0.0.weight", "0.0.bias", "1.0.weight", "1.0.bias"}
    several(0).restore(state)
    with pytest.raises(CheckpointError, match="is not the one"):
        several(1).restore(state)


def test_what_a_script_changes_is_not_frozen():
    training = training_of(make_model())
    assert "0.weight" in capture(training)["frozen"]
    training.models[0][0].weight.data.mul_(0.99)
    state = capture(training)
    assert "0.weight" in state["model"]
    assert state["frozen"].keys() == {"0.bias"}


def test_what_was_trained_once_is_never_frozen():
    """A GAN switches gradients off and on in every step; a backbone may be frozen after some epochs."""
    training = training_of(make_model())
    capture(training)
    training.models[0][2].requires_grad_(False)
    assert "2.weight" in capture(training)["model"]


def test_what_came_by_value_changes_somewhere():
    training = training_of(make_model())
    training.models[0][0].weight.data.add_(1)
    state = copy.deepcopy(capture(training)) | {"frozen": {"0.bias": capture(training)["frozen"]["0.bias"]}}
    state["model"]["0.weight"] = training.models[0][0].weight.detach().clone()
    healed = training_of(make_model())
    healed.restore(state)
    assert capture(healed)["frozen"].keys() == {"0.bias"}


def test_a_file_has_small_frozen_values(monkeypatch):
    training = training_of(make_model())
    state = capture(training)
    assert training.with_small_frozen(state)["model"].keys() - state["model"].keys() == {"0.weight", "0.bias"}
    monkeypatch.setattr("potluck.engine.checkpoints.state._SMALL_BYTES", 100)
    assert training.with_small_frozen(state) == state
    plain = capture(training_of(nn.Linear(2, 2)))
    assert training.with_small_frozen(plain)["model"].keys() == plain["model"].keys()


def test_what_belongs_to_a_frozen_parameter_stays_with_it():
    state = {"base.weight": 1, "base.weight.absmax": 2, "base.weights": 3, "adapter.weight": 4}
    assert without(state, ["base.weight"]) == {"base.weights": 3, "adapter.weight": 4}


def test_digests_are_of_values():
    known, values = FrozenParameters(), torch.arange(9.0)
    assert known.digest("one", values) == digest_of([values])
    assert known.digest("one", values + 1) == digest_of([values + 1])
    assert digest_of([torch.ones(3, dtype=torch.bfloat16)]) != digest_of([torch.ones(3)])


@pytest.fixture
def peers():
    made = [StateExchange("127.0.0.1", b"secret") for _ in range(2)]
    yield made
    for one in made:
        one.shutdown()


def part(*values):
    tensor = torch.tensor(values)
    return FrozenPart(digest_of([tensor]), tensor)


def test_a_peer_sends_what_this_worker_lacks(peers):
    peer, me = peers
    theirs = {"base": part(1.0, 2.0), "other": part(3.0)}
    digests = {name: one.digest for name, one in theirs.items()}
    peer.frozen, me.frozen = lambda: theirs, lambda: {**theirs, "base": part(0.0, 0.0)}
    peer.values = me.values = lambda: {name: one.values for name, one in theirs.items()}
    peer.open(7, lambda: {"user": {"default": {"model": {"head": torch.ones(2)}, "frozen": digests}}})
    model = me.fetch(peer.metadata(), 7, timedelta(seconds=5))["user"]["default"]["model"]
    assert model.keys() == {"head", "base"}
    assert torch.equal(model["base"], theirs["base"].values)
    me.frozen = dict  # nothing is frozen here: all values travel
    model = me.fetch(peer.metadata(), 7, timedelta(seconds=5))["user"]["default"]["model"]
    assert model.keys() == {"head", "base", "other"}
    me.values = dict
    with pytest.raises(GroupError, match="another machine's model has base, and the model here has not"):
        me.fetch(peer.metadata(), 7, timedelta(seconds=5))
