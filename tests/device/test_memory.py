"""A full device: micro-batches that fit are found by trial, and after an out-of-memory error of a run."""

import json
import subprocess
import sys

import pytest

FITS_16 = {"STANDIN_MEMORY_BYTES": "3000000"}  # of simple_cnn-tiny's samples; 32 need 4.4 MB


@pytest.fixture
def potluck(on_device, workplace):
    """Run a command; return its exit code, stdout and stderr."""

    def run(*arguments, **variables):
        done = subprocess.run(
            [sys.executable, "-m", "potluck", *arguments],
            env={**on_device, "POTLUCK_HOME": str(workplace / "home"), **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    return run


TRAIN = ("train", "--model-size", "tiny", "--num-samples", "128", "--epochs", "1", "--experiment-name", "one")


def test_a_trial_finds_how_much_fits_in_every_precision(potluck):
    wanted = ("profile", "--model-size", "tiny", "--seconds", "0.2", "--device", "standin:1", "--json")
    for precision in ("no", "fp16", "bf16"):
        code, out, error = potluck(*wanted, "--mixed-precision", precision, **FITS_16)
        assert code == 0, error
        profile = json.loads(out)
        assert profile["device"] == "standin:1"
        assert profile["compute"]["memory_cap"] in ((16,) if precision == "no" else (16, 32))
        assert max(map(int, profile["trial"])) <= profile["compute"]["memory_cap"]


def test_a_model_that_does_not_fit_is_named(potluck):
    code, _, error = potluck("profile", "--model-size", "tiny", STANDIN_MEMORY_BYTES="30000")
    assert code != 0
    assert "the parameters of simple_cnn-tiny do not fit into the memory of standin:0" in error
    assert "Traceback" not in error


def test_a_run_that_is_out_of_memory_says_so_and_fits_when_started_again(potluck):
    results = []
    for number in range(4):
        resume = ("--resume",) if number else ()
        code, out, error = potluck(*TRAIN, "--device", "standin:1", *resume, **FITS_16)
        results.append(error)
        if code == 0:
            break
        assert "not fit into the memory of standin:1" in error
        assert "start this worker again: it will take at most" in error
    assert code == 0, results
    assert len(results) == 3, results  # 64, 32, 16
    assert "takes at most 16 samples at once" in out + error


def test_a_run_that_measures_first_is_never_out_of_memory(potluck):
    code, out, error = potluck(*TRAIN, "--device", "standin", "--enable-profiling", **FITS_16)
    assert code == 0, error
    assert "takes at most 16 samples at once" in out + error


def test_samples_that_do_not_even_fit_as_inputs_are_taken_in_smaller_micro_batches(python):
    """Of 100 kB each; the model is small. The copy to the device is what fails."""
    python(
        """
import gc
import torch
import potluck
from potluck.core.errors import MeasureError

def train():
    torch.manual_seed(1)
    model = torch.nn.Linear(25_000, 2)
    data = torch.utils.data.TensorDataset(torch.randn(64, 25_000), torch.randint(2, (64,)))
    with potluck.start("one", device="standin:1", quiet=True) as run:
        prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
        for _ in run.epochs(1):
            for inputs, targets in run.loader(data, global_batch=64):
                run.backward(torch.nn.functional.cross_entropy(prepared(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()
                assert len(inputs) <= 16

told = []
for _ in range(5):
    try:
        train()
        break
    except MeasureError as error:
        told.append(str(error))
    gc.collect()
assert 2 <= len(told) <= 3, told  # a script holds a micro-batch while the next one is copied
assert "64 samples at once do not fit into the memory of standin:1" in told[0], told
""",
        **FITS_16,
    )


def test_an_evaluation_between_steps_takes_smaller_batches_and_leaves_the_training_as_it_is(python):
    python(
        """
import torch
import potluck

torch.manual_seed(1)
class Wide(torch.nn.Linear):
    def forward(self, inputs):  # 100 kB a sample
        return super().forward(inputs.repeat(1, 500))

model = Wide(25_000, 2)
data = torch.utils.data.TensorDataset(torch.randn(64, 50), torch.randint(2, (64,)))
with potluck.start("one", device="standin:1", quiet=True) as run:
    prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for _ in run.epochs(1):
        for inputs, targets in run.loader(data, global_batch=4):
            run.backward(torch.nn.functional.cross_entropy(prepared(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            measured = run.evaluate(data, lambda x, y: {"right": (prepared(x).argmax(1) == y).float()})
            assert set(measured) == {"right"}, measured
""",
        **FITS_16,
    )
