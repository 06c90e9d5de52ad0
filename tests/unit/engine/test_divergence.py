"""A loss that diverges is said once, shows in the run's state and exit code, and spoils no checkpoint."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from torch import nn

import potluck
from potluck.core.exit_codes import DIVERGED, STOPPED
from potluck.engine.steps.divergence import LossWatch, advice
from potluck.events.log import read_records
from potluck.events.state import replay
from potluck.events.types import LossDiverged, Record, StepCommitted
from potluck.report.live_view import LiveView
from potluck.report.runs import list_runs
from tests.training import make_data, make_mlp, make_optimizer

ROOT = Path(__file__).parents[3]
NAN = float("nan")


def looks(losses):
    watch = LossWatch()
    return [event for step, loss in enumerate(losses, 1) if (event := watch.look(step, loss)) is not None]


def test_a_loss_that_is_not_a_number_is_noticed_at_once_and_once():
    [event] = looks([2.3, 2.2, NAN, NAN, float("inf")])
    assert (event.step, event.loss) == (3, None)
    assert "not a number since step 3" in advice(event)
    assert "--lr" in advice(event)
    assert "run.clip_gradients(1.0)" in advice(event)


def test_a_loss_far_above_the_first_steps_for_long_is_noticed():
    [event] = looks([2.0] * 10 + [1.5] * 5 + [1e5] * 30)
    assert (event.step, event.limit) == (16, 2000.0)
    assert "above 2000" in advice(event).replace(",", "")


@pytest.mark.parametrize(
    "losses",
    [
        [2.0] * 40,
        [2.0] * 10 + [1e5] * 19 + [2.0] * 30,  # a peak
        [0.01] * 10 + [-500.0] * 40,  # a likelihood
        [0.0] * 10 + [1.0] * 40,  # nothing to compare with
        [5.0, 1e-9, 4.0, 3.0] * 12,  # single samples
        [0.1] * 10 + [50.0] * 40,
    ],
    ids=["flat", "peak", "negative", "zero", "noisy", "rising"],
)
def test_an_unusual_loss_is_no_divergence(losses):
    assert looks(losses) == []


@pytest.mark.parametrize(("losses", "code"), [([2.0, None], DIVERGED), ([2.0, None, 1.0], 0), ([2.0, 1.0], 0)], ids=str)
def test_a_run_of_several_machines_ends_with_the_code(losses, code):
    """The display sees the events of all workers; each tells of the divergence, and it counts once."""
    from potluck.cli.following import _exit_code

    view = LiveView()
    for worker in ("rosa-0", "lily-0"):
        events = []
        for step, loss in enumerate(losses, 1):
            events.append(StepCommitted(step=step, epoch=0, samples=8, loss=loss, seconds=0.1))
            if loss is None:
                events.append(LossDiverged(step=step, loss=None))
        lines = "".join(
            msgspec.json.encode(Record(sequence=number, time=float(number), event=event)).decode() + "\n"
            for number, event in enumerate(events)
        )
        list(view.take([(f"events/{worker}.jsonl", lines)]))
    assert _exit_code("finished", view.state) == code
    assert _exit_code("stopped", view.state) == STOPPED
    assert view.end("finished")[1].diverged_since == (2 if code else 0)


def train(name, factors, *, epochs=2, **options):
    """Three steps an epoch; the loss of a step is multiplied by its factor."""
    model = make_mlp()
    with potluck.start(name, device="cpu", **options) as run:
        prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
        loader = run.loader(make_data(24), global_batch=8)
        for _ in run.epochs(epochs):
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(prepared(inputs), targets)
                run.backward(loss * factors.get(run.step, 1.0))
                optimizer.step()
                optimizer.zero_grad()


def state_of(name):
    [path] = (Path("experiments") / name / "events").glob("*.jsonl")
    return replay(read_records(path))


def test_a_diverged_run_ends_with_a_code_of_its_own_and_keeps_its_good_checkpoint(workplace, capfd):
    with pytest.raises(SystemExit) as caught:
        train("bad", {4: NAN})
    assert caught.value.code == DIVERGED == 3
    said = capfd.readouterr().err
    assert said.count("Try a lower learning rate") == 1
    state = state_of("bad")
    assert (state.ended, state.message, state.diverged_since) == (
        "finished",
        "the loss is not a number since step 5",
        5,
    )
    assert [path.name for path in Path("experiments/bad/checkpoints").iterdir()] == ["model_epoch_1.pth"]
    [row] = list_runs(Path("experiments"))
    assert row.status == "diverged"


def test_a_diverged_run_goes_on_from_before_it_diverged(workplace, capfd):
    with pytest.raises(SystemExit):
        train("bad", {4: NAN})
    train("bad", {}, resume=True)
    assert "going on after step 3" in capfd.readouterr().err
    state = state_of("bad")
    assert (state.ended, state.diverged_since, state.step) == ("finished", 0, 6)
    assert list_runs(Path("experiments"))[0].status == "finished"


def test_stopping_a_diverged_run_says_that_nothing_is_saved(workplace, capfd):
    class Stopping(dict):
        def get(self, step, default):
            if step == 1:
                run.request_stop()
            return NAN

    model = make_mlp()
    with pytest.raises(potluck.Stopped), potluck.start("bad", device="cpu") as run:
        prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
        factors = Stopping()
        for _ in run.epochs(1):
            for inputs, targets in run.loader(make_data(24), global_batch=8):
                loss = nn.functional.cross_entropy(prepared(inputs), targets)
                run.backward(loss * factors.get(run.step, 1.0))
                optimizer.step()
    assert "nothing is saved, because the loss is not a number since step 1" in capfd.readouterr().err
    assert list(Path("experiments/bad").rglob("*.pth")) == []


def test_a_loss_that_recovers_is_no_diverged_run(workplace):
    """A loss that is not a number, but with gradients that are."""
    model = make_mlp()
    with potluck.start("odd", device="cpu") as run:
        prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
        for _ in run.epochs(1):
            for inputs, targets in run.loader(make_data(24), global_batch=8):
                loss = nn.functional.cross_entropy(prepared(inputs), targets)
                run.backward(loss + NAN if run.step == 0 else loss)
                optimizer.step()
                optimizer.zero_grad()
    state = state_of("odd")
    assert (state.ended, state.diverged_since, state.message) == ("finished", 0, "")
    [path] = Path("experiments/odd/events").glob("*.jsonl")
    assert sum(isinstance(record.event, LossDiverged) for record in read_records(path)) == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "opening", ["run = potluck.start('bad', device='cpu')\nif True:", "with potluck.start('bad', device='cpu') as run:"]
)
@pytest.mark.slow
def test_a_script_ends_with_the_code(workplace, opening):
    Path("script.py").write_text(
        "import potluck, torch\nfrom tests.training import make_data, make_mlp, make_optimizer\n"
        f"model = make_mlp()\n{opening}\n"
        "    prepared, optimizer = run.prepare(model, make_optimizer('sgd', model))\n"
        "    for _ in run.epochs(1):\n"
        "        for inputs, targets in run.loader(make_data(24), global_batch=8):\n"
        "            run.backward(prepared(inputs).sum() * float('nan'))\n"
        "            optimizer.step()\n"
        "print('the script is through' if run else '')\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == DIVERGED, done.stderr
    assert done.stderr.count("Try a lower learning rate") == 1
