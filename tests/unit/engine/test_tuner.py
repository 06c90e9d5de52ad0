"""How a machine is tuned: trials that leave no trace, the same numbers or not at all, a way back."""

import copy
import random
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import potluck
from potluck.engine.compute.tuner import Tuner
from potluck.measuring import allocator, tuning_trials
from potluck.measuring.tuned_pass import has_images, make_trial, part_of, tuned_inputs
from potluck.measuring.tuning import Tuning
from potluck.measuring.tuning_store import find_tuning_file
from potluck.measuring.tuning_trials import Numbers, are_alike, find_tuning
from tests.training import train

CPU = torch.device("cpu")
IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Picture(nn.Module):
    """Convolution, BatchNorm and dropout; flattens with `view` if asked, which images with channels last lack."""

    def __init__(self, *, views=False):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.head = nn.Linear(6 * 36, 5)
        self.views = views

    def forward(self, images):
        features = self.layers(images)
        flat = features.view(len(images), -1) if self.views else features.flatten(1)
        return self.head(nn.functional.dropout(flat, 0.5, self.training))


@pytest.fixture(autouse=True)
def usual_allocator():
    yield
    allocator.give_back_freed_memory()


def trial_of(model, *args):
    return make_trial(model, model, device=CPU, forward_context=nullcontext, args=args, kwargs={})


def find(trial, **options):
    return find_tuning(lambda _: trial, **options)


def make_tuner(stored=None, **options):
    kept, said = [], []
    tuner = Tuner(CPU, nullcontext, recall=lambda: stored, keep=kept.append, say=said.append, **options)
    return tuner, kept, said


def test_a_trial_leaves_no_trace_and_gives_the_same_numbers_again():
    model = Picture()
    before, random_state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    trial = trial_of(model, IMAGES)
    first, second, third = trial(Tuning()), trial(Tuning()), trial(Tuning(channels_last=True))
    for one, other in zip(first, second, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert are_alike(first, third)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_numbers_that_differ_do_not_count():
    ones, twos = torch.ones(3), torch.ones(2, 2)
    one = Numbers([ones], [ones, twos])
    assert are_alike(one, Numbers([ones * (1 + 1e-5)], [ones * 1.01, twos]))
    assert not are_alike(one, Numbers([ones * (1 + 1e-3)], [ones, twos]))
    assert not are_alike(one, Numbers([ones], [ones * 1.1, twos]))
    assert not are_alike(one, Numbers([ones * torch.nan], [ones, twos]))
    assert not are_alike(one, Numbers([ones], [ones]))


@pytest.mark.parametrize("gain", [0.8, 1.01, 1.5])
def test_a_way_is_taken_if_it_is_clearly_faster(monkeypatch, gain):
    seconds = {False: 0.01 * gain, True: 0.01}
    monkeypatch.setattr(tuning_trials, "_seconds", lambda _, tuning: seconds[tuning.channels_last])
    found = find(lambda _: Numbers([torch.ones(1)], []), has_images=True, is_on_cpu=False)
    assert found.channels_last == (gain > 1.03)
    assert found.gains == {"channels_last": gain}
    assert found.words == ("channels_last +50 %" if gain == 1.5 else "")


def test_a_way_that_fails_or_gives_other_numbers_is_not_taken():
    def other_numbers(tuning):
        return Numbers([torch.full((2,), 2.0 if tuning.channels_last else 1.0)], [])

    assert not find(other_numbers, has_images=True, is_on_cpu=False).channels_last
    assert not find(trial_of(Picture(views=True), IMAGES), has_images=True, is_on_cpu=False).channels_last


def test_only_images_are_changed():
    matrix, labels = torch.ones(4, 8), torch.ones(4, 1, 2, 2, dtype=torch.long)
    assert has_images((matrix,), {"images": [IMAGES]})
    assert not has_images((matrix,), {"labels": labels})
    args, kwargs = tuned_inputs(Tuning(channels_last=True), (matrix, IMAGES), {"labels": labels, "more": [IMAGES]})
    assert args[0] is matrix
    assert kwargs["labels"] is labels
    for images in (args[1], kwargs["more"][0]):
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(images, IMAGES)
    assert tuned_inputs(Tuning(), (IMAGES,), {})[0][0] is IMAGES


def test_a_stored_tuning_is_taken_without_a_trial():
    tuner, kept, said = make_tuner(Tuning(channels_last=True, gains={"channels_last": 1.31}))
    tuner.settle(nn.Module(), (IMAGES,), {})  # whose forward would fail
    assert tuner.tuning.channels_last
    assert kept == []
    assert said == ["tuned for this machine: channels_last +31 %"]


def test_what_was_found_is_kept_and_told_once():
    tuner, kept, said = make_tuner()
    tuner.settle(Picture(), (IMAGES,), {})
    tuner.settle(Picture(), (IMAGES,), {})
    assert kept == [tuner.tuning]
    assert set(kept[0].gains) == {"channels_last", "allocator"}
    assert len(said) == bool(kept[0].words)


def test_a_model_that_cannot_be_tried_trains_as_it_is():
    tuner, kept, said = make_tuner()
    tuner.settle(nn.Module(), (IMAGES,), {})
    assert tuner.tuning == Tuning()
    assert kept == []
    assert said[0].startswith("not tuned, because a trial pass failed: ")


def test_without_tuning_nothing_is_tried():
    tuner, kept, said = make_tuner(is_on=False)
    tuner.settle(nn.Module(), (IMAGES,), {})
    assert (tuner.tuning, kept, said) == (Tuning(), [], [])


def test_a_tuned_pass_that_fails_is_made_again_without():
    gains = {"channels_last": 1.5, "allocator": 1.2}
    tuner, kept, said = make_tuner(Tuning(channels_last=True, keeps_memory=True, gains=gains))
    tuner.settle(model := Picture(), (IMAGES,), {})
    tuner.give_up(model, RuntimeError("view size is not compatible"))
    assert tuner.tuning == kept[0] == Tuning(keeps_memory=True, gains=gains)
    assert said[1:] == ["channels_last is off from now on: a pass failed with it: view size is not compatible"]


class Counting(Picture):
    """Changes itself, its input and the random generators in every pass."""

    def __init__(self):
        super().__init__()
        self.passes, self.seen = 0, []
        self.teacher = nn.Linear(2, 2).requires_grad_(False)
        self.register_buffer("mean", torch.zeros(1))

    def forward(self, images):
        self.passes += 1
        self.seen.append(len(images))
        self.mean = self.mean + 1
        self.teacher.weight.data.mul_(0.5)
        random.random()
        return super().forward(images.sub_(1.0))


def test_a_model_that_changes_in_every_pass_is_as_before_the_trials():
    model, images, state = Counting(), IMAGES.clone(), random.getstate()
    before = copy.deepcopy(model.state_dict())
    tuner, kept, _ = make_tuner()
    tuner.settle(model, (images,), {})
    assert len(kept) == 1
    assert (model.passes, model.seen) == (0, [])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(images, IMAGES)
    assert random.getstate() == state


def test_passes_that_stay_long_are_not_tried(monkeypatch):
    monkeypatch.setattr(tuning_trials, "_seconds", lambda *_: 5.0)
    assert find(lambda _: Numbers([], []), has_images=True, is_on_cpu=True) == Tuning()


def test_long_passes_are_tried_with_fewer_samples(monkeypatch):
    seconds, parts = iter([8.0, 4.0, 0.1]), []
    monkeypatch.setattr(tuning_trials, "_seconds", lambda *_: next(seconds, 1.0))

    def make(part):
        parts.append(part)
        return lambda _: Numbers([], [])

    find_tuning(make, has_images=True, is_on_cpu=False)
    assert parts == [1.0, pytest.approx(1 / 24)]
    assert len(part_of((IMAGES, torch.ones(4)), 0.5)[1]) == 2
    assert len(part_of((IMAGES,), 0.01)[0]) == 1
    assert part_of((IMAGES, torch.ones(9)), 0.5)[0] is IMAGES  # samples are not told apart from the rest


def test_with_little_memory_nothing_is_tried(monkeypatch):
    monkeypatch.setattr("potluck.engine.compute.tuner.free_memory_bytes", lambda: 1000)
    tuner, kept, said = make_tuner()
    tuner.settle(Picture(), (IMAGES,), {})
    assert (tuner.tuning, kept) == (Tuning(), [])
    assert said == ["not tuned, because trials would have to hold copies of too large a model"]


def test_words_name_what_was_taken_and_what_was_not():
    gains = {"channels_last": 1.31, "allocator": 1.01, "bf16": 0.48}
    assert Tuning(channels_last=True, gains=gains).words == "channels_last +31 %"
    assert Tuning(channels_last=True, gains=gains).all_words == (
        "channels_last +31 %; not taken: allocator +1 %; --mixed-precision bf16 would be 2.1x slower here"
    )
    assert Tuning(gains={"bf16": 1.9}).all_words == (
        "PyTorch's defaults are the fastest way; --mixed-precision bf16 would be 1.9x faster here"
    )


def train_pictures(name, **options):
    generator = torch.Generator().manual_seed(2)
    data = TensorDataset(torch.randn(48, 3, 8, 8, generator=generator), torch.randint(5, (48,), generator=generator))
    return train(name, model=Picture(), data=data, epochs=2, **options)[0]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("POTLUCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("POTLUCK_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("POTLUCK_NAME", "rosa")
    monkeypatch.setenv("POTLUCK_TUNING", "1")
    return tmp_path / "home"


def test_a_tuned_run_has_the_same_maths_and_the_next_run_need_not_try(home, monkeypatch, capfd):
    plain = train_pictures("plain", tuning=False)
    monkeypatch.setattr(tuning_trials, "_LEAST_GAIN", 1e-9)  # everything is taken
    tuned = train_pictures("tuned")
    for one, other in zip(plain, tuned, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert "tuned for this machine: channels_last" in capfd.readouterr().err
    [path] = home.glob("profiles/rosa/*.tuning")
    stored = find_tuning_file(path, torch.__version__)
    assert stored.channels_last
    assert stored.keeps_memory
    assert find_tuning_file(path, "2.0") is None
    again = train_pictures("again")
    assert all(torch.equal(one, other) for one, other in zip(tuned, again, strict=True))
    assert "tuned for this machine: channels_last" in capfd.readouterr().err
    monkeypatch.setenv("POTLUCK_TUNING", "0")
    untuned = train_pictures("untuned")
    assert all(torch.equal(one, other) for one, other in zip(plain, untuned, strict=True))


def test_an_error_of_the_script_is_not_taken_for_one_of_the_tuning(home, monkeypatch, capfd):
    monkeypatch.setattr(tuning_trials, "_LEAST_GAIN", 0.0)
    with potluck.start("wrong", device="cpu") as run:
        model = Picture()
        prepared, _ = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        run._preparation.complete()
        prepared(IMAGES)
        with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
            prepared(IMAGES[:, :, :6])
        assert prepared._tuner.tuning.channels_last
    assert "off from now on" not in capfd.readouterr().err


def test_a_script_whose_evaluation_needs_plain_images_goes_on(home, monkeypatch, capfd):
    class Odd(Picture):
        def forward(self, images):
            if not self.training:
                images.view(-1)
            return super().forward(images)

    monkeypatch.setattr(tuning_trials, "_LEAST_GAIN", 0.0)
    with potluck.start("odd", device="cpu") as run:
        model = Odd()
        prepared, _ = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        prepared(IMAGES)
        assert prepared._tuner.tuning == Tuning()  # training has not begun
        run._preparation.complete()
        prepared(IMAGES)
        assert prepared._tuner.tuning.channels_last
        prepared.eval()
        with torch.no_grad():
            assert prepared(IMAGES).shape == (4, 5)
        assert not prepared._tuner.tuning.channels_last
    assert "channels_last is off from now on" in capfd.readouterr().err
