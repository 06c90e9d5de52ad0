"""Law: SIGKILL anywhere, any number of times, then --resume: bit-identical to a run that was left in peace."""

import random
import signal

import pytest
import torch

from tests.multiprocess.command import SMALL, Command

NUM_STEPS = 4 * 19


def final_state(run):
    return torch.load(f"experiments/{run}/checkpoints/model_epoch_4.pth", weights_only=True)


def assert_identical(mine, theirs, where="state"):
    assert type(mine) is type(theirs), where
    if isinstance(mine, torch.Tensor):
        assert torch.equal(mine, theirs), where
    elif isinstance(mine, dict):
        assert mine.keys() == theirs.keys(), where
        for key in mine.keys() - {"epoch_so_far"}:  # holds seconds
            assert_identical(mine[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(mine, (list, tuple)):
        for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            assert_identical(a, b, f"{where}[{index}]")
    else:
        assert mine == theirs, where


@pytest.mark.timeout(300)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_ten_kills_at_ten_places_change_nothing(workplace, optimizer):
    options = [*SMALL, "--epochs", 4, "--optimizer", optimizer, "--checkpoint-every", 5, "--lr-schedule", "cosine"]
    peaceful = Command("train", *options, "--experiment-name", "peaceful")
    places = sorted(random.Random(optimizer).sample(range(1, NUM_STEPS - 4), 10))
    killed = []
    for place in places:
        flags = ["--resume"] if killed else options
        process = Command("train", *flags, "--experiment-name", "killed")
        process.wait_for_step("killed", place)
        process.signal(signal.SIGKILL)
        killed.append(process.finish()[0])
    code, output = Command("train", "--resume", "--experiment-name", "killed").finish()
    assert code == 0, output
    assert f"{NUM_STEPS} of {NUM_STEPS}" in output
    assert killed == [-signal.SIGKILL] * 10
    assert "finished" in peaceful.finish()[1]
    assert_identical(final_state("peaceful"), final_state("killed"))
