"""Frozen parameters: their digests stand for them, unless a script changes them after all."""

import copy
from datetime import timedelta

import pytest
import torch
from torch import nn

from potluck.core.errors import CheckpointError, GroupError, UsageError
from potluck.engine.checkpoints.state import FORMAT, FORMAT_WITH_FROZEN, EpochSoFar, TrainingState
from potluck.engine.compute.fingerprint import fingerprint
from potluck.engine.compute.frozen import FrozenParameters, FrozenPart, without
from potluck.engine.compute.frozen_cache import FrozenCache
from potluck.engine.compute.frozen_precision import round_frozen
from potluck.engine.compute.precision import Precision
from potluck.engine.compute.tensor_bytes import digest_of
from potluck.engine.group.frozen_transfer import OwnParameters
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
    peer.own.frozen, me.own.frozen = lambda: theirs, lambda: {**theirs, "base": part(0.0, 0.0)}
    peer.own.values = me.own.values = lambda: {name: one.values for name, one in theirs.items()}
    peer.open(7, lambda: {"user": {"default": {"model": {"head": torch.ones(2)}, "frozen": digests}}})
    model = me.fetch(peer.metadata(), 7, timedelta(seconds=5))["user"]["default"]["model"]
    assert model.keys() == {"head", "base"}
    assert torch.equal(model["base"], theirs["base"].values)
    me.own.frozen = dict  # nothing is frozen here: all values travel
    model = me.fetch(peer.metadata(), 7, timedelta(seconds=5))["user"]["default"]["model"]
    assert model.keys() == {"head", "base", "other"}
    me.own.values = dict
    with pytest.raises(GroupError, match="another machine's model has base, and the model here has not"):
        me.fetch(peer.metadata(), 7, timedelta(seconds=5))


def test_what_came_from_a_peer_is_on_disk_afterwards_and_is_not_asked_for_again(peers, tmp_path):
    peer, me = peers
    theirs, said = {"base": part(1.0, 2.0), "other": part(3.0)}, []
    state = {"model": {}, "frozen": {name: one.digest for name, one in theirs.items()}}
    peer.own.values = lambda: {name: one.values for name, one in theirs.items()}
    me.own = OwnParameters(values=peer.own.values, cache=FrozenCache(tmp_path / "frozen"), say=said.append)
    peer.open(7, lambda: {"user": {"default": state}})

    def fetch():
        return me.fetch(peer.metadata(), 7, timedelta(seconds=5))["user"]["default"]["model"]

    fetch()
    me.own.close()
    assert {file.name for file in (tmp_path / "frozen").iterdir()} == {one.digest for one in theirs.values()}
    peer.own.values = dict  # it could not answer if it were asked
    found = fetch()
    assert all(torch.equal(found[name], one.values) for name, one in theirs.items())
    assert [line.split("took ")[1] for line in said] == [
        "0.0 MB from another machine",
        "0.0 MB from this machine's disk",
    ]
    (tmp_path / "frozen" / theirs["base"].digest).write_bytes(b"damaged!")
    with pytest.raises(ConnectionError, match="base on this machine's disk was damaged"):
        fetch()
    peer.own.values = lambda: {name: one.values for name, one in theirs.items()}
    assert torch.equal(fetch()["base"], theirs["base"].values)


def test_a_peer_with_rounded_parameters_sends_none(peers):
    peer, me = peers
    theirs = {"base": part(1.0, 2.0)}
    state = {"model": {}, "frozen": {"base": theirs["base"].digest}, "frozen_precision": "bf16"}
    peer.open(7, lambda: {"user": {"default": state}})
    me.own = OwnParameters(frozen=lambda: theirs, values=lambda: {"base": theirs["base"].values})
    me.fetch(peer.metadata(), 7, timedelta(seconds=5))
    me.own.frozen = lambda: {"base": part(0.0, 0.0)}
    with pytest.raises(GroupError, match="it keeps its frozen parameters in bf16, and those here are others"):
        me.fetch(peer.metadata(), 7, timedelta(seconds=5))


def rounded(model, precision="bf16"):
    training = training_of(model)
    training.frozen_precision = precision
    assert round_frozen(model, precision) == 2 * (40 * 30 + 30)
    return training


def test_rounded_parameters_count_as_what_they_were():
    exact, here = training_of(make_model()), rounded(make_model())
    assert here.models[0][0].weight.dtype == torch.bfloat16
    assert here.models[0][2].weight.dtype == torch.float32
    assert fingerprint(here.model) == fingerprint(exact.model)
    state = copy.deepcopy(capture(here))
    assert state["frozen"] == capture(exact)["frozen"]
    assert state["frozen_precision"] == "bf16"
    assert here.with_small_frozen(state) == state
    exact.restore(state)
    here.restore(copy.deepcopy(capture(exact)))
    here.models[0][0].weight.data.mul_(2)
    assert "0.weight" in capture(here)["model"]  # a script may still change it


def test_other_values_are_rounded_too_and_count_as_these():
    other = training_of(make_model(seed=1))
    state = other.with_small_frozen(copy.deepcopy(capture(other)))
    here = rounded(make_model(), "fp16")
    here.restore(state)
    assert capture(here)["frozen"] == state["frozen"]
    assert torch.equal(here.models[0][0].weight, other.models[0][0].weight.half())
    room = here.frozen()["0.weight"]
    assert (room.dtype, room.values.dtype) == (torch.float32, torch.float16)


def test_only_known_precisions():
    with pytest.raises(UsageError, match="frozen_precision='int3' is not known"):
        round_frozen(make_model(), "int3")
