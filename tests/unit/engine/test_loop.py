"""The loop a user writes: what it may do, and what it is told when it does something else."""

import json
import time

import pytest
import torch
from torch import nn

import potluck
from potluck.core.errors import CheckpointError, RunFolderError, SettingsError, UsageError
from potluck.engine.steps.step import Step
from potluck.events.log import read_records
from potluck.events.types import MetricsLogged, RunEnded, StepCommitted
from tests.fake_group import FakeGroup
from tests.training import make_data, make_mlp, train


class Loop:
    """A prepared run, to be driven one call at a time."""

    def __init__(self, run, *, scheduler=False, num_samples=24):
        self.run = run
        self.model = make_mlp()
        self.inner = torch.optim.SGD(self.model.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(self.inner, step_size=1, gamma=0.5)
        prepared = run.prepare(self.model, self.inner, *([schedule] if scheduler else []))
        self.prepared, self.optimizer = prepared[:2]
        self.scheduler = prepared[2] if scheduler else None
        self.loader = run.loader(make_data(num_samples), global_batch=8)

    def loss(self, batch):
        return nn.functional.cross_entropy(self.prepared(batch[0]), batch[1])

    def step(self, batch):
        self.run.backward(self.loss(batch))
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.fixture
def loop(workplace):
    with potluck.start("loop", device="cpu") as run:
        yield Loop(run)


def events(name, kind):
    [path] = (potluck_folder(name) / "events").glob("*.jsonl")
    return [record.event for record in read_records(path) if isinstance(record.event, kind)]


def potluck_folder(name):
    from pathlib import Path

    return Path("experiments") / name


def test_forgetting_optimizer_step_is_told(loop):
    with pytest.raises(UsageError, match="step 1 was never applied") as caught:
        for _ in loop.run.epochs(1):
            for batch in loop.loader:
                loop.run.backward(loop.loss(batch))
    assert "optimizer.step()" in caught.value.fix


def test_forgetting_backward_is_told(loop):
    with pytest.raises(UsageError, match="without a new gradient"):
        for _ in loop.run.epochs(1):
            for _ in loop.loader:
                loop.optimizer.step()


def test_skipping_a_batch_is_told(loop):
    with pytest.raises(UsageError, match="without a backward pass"):
        for _ in loop.run.epochs(1):
            for _ in loop.loader:
                pass


def test_two_backward_passes_for_a_batch_are_told(loop):
    def twice():
        for _ in loop.run.epochs(1):
            for batch in loop.loader:
                loop.run.backward(loop.loss(batch))
                loop.run.backward(loop.loss(batch))

    with pytest.raises(UsageError, match="twice for one batch"):
        twice()


def test_an_epoch_without_the_loader_is_told(loop):
    with pytest.raises(UsageError, match="without one committed step"):
        list(loop.run.epochs(1))


def test_calls_outside_the_loop_are_told(loop):
    with pytest.raises(UsageError, match=r"run\.backward was called outside"):
        loop.run.backward(torch.ones(()))
    with pytest.raises(UsageError, match=r"optimizer\.step was called outside"):
        loop.optimizer.step()


def test_there_is_one_dataset_to_train_on(loop):
    with pytest.raises(UsageError, match=r"run\.loader was called twice") as caught:
        loop.run.loader(make_data(), global_batch=8)
    assert "run.evaluate" in caught.value.fix


def test_nothing_is_prepared_after_training_began(loop):
    next(loop.run.epochs(1))
    with pytest.raises(UsageError, match="after training began"):
        loop.run.prepare(make_mlp())


def test_the_order_of_calls_is_told(workplace):
    with potluck.start("a", device="cpu") as run:
        with pytest.raises(UsageError, match="no model yet"):
            run.epochs(1)
        with pytest.raises(UsageError, match="not the model's"):
            run.prepare(make_mlp(), torch.optim.SGD(make_mlp().parameters(), lr=1.0))
        with pytest.raises(UsageError, match="0 samples"):
            run.loader(make_data(0), global_batch=8)


def test_a_closure_is_refused(loop):
    with pytest.raises(UsageError, match="closure"):
        loop.optimizer.step(lambda: None)


def test_max_steps_ends_in_the_middle_of_an_epoch(workplace):
    _, step = train("a", data=make_data(24), epochs=5, max_steps=4)
    assert step == 4
    assert sorted(path.name for path in (potluck_folder("a") / "checkpoints").iterdir()) == [
        "model_epoch_1.pth",
        "model_epoch_2_step_4.pth",
    ]


def test_both_places_for_zero_grad_work_with_micro_batches(workplace):
    def train_with(name, *, first):
        model = make_mlp()
        with potluck.start(name, device="cpu", micro_batch=3) as run:
            prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            loader = run.loader(make_data(24), global_batch=8)
            for _ in run.epochs(2):
                for inputs, targets in loader:
                    if first:
                        optimizer.zero_grad()
                    run.backward(nn.functional.cross_entropy(prepared(inputs), targets))
                    optimizer.step()
                    if not first:
                        optimizer.zero_grad()
        return model[0].weight

    assert torch.equal(train_with("first", first=True), train_with("last", first=False))


def test_a_schedule_moves_once_a_step_and_once_an_epoch(workplace):
    with potluck.start("a", device="cpu", micro_batch=3) as run:
        loop = Loop(run, scheduler=True)
        for _ in run.epochs(1):
            for batch in loop.loader:
                loop.step(batch)
                loop.scheduler.step()
            assert loop.inner.param_groups[0]["lr"] == 0.5**3
            loop.scheduler.step()
            assert loop.scheduler.get_last_lr() == [0.5**4]


def test_a_schedule_may_be_made_from_the_prepared_optimizer(loop):
    schedule = torch.optim.lr_scheduler.StepLR(loop.optimizer, step_size=1, gamma=0.5)
    for _ in loop.run.epochs(1):
        for batch in loop.loader:
            loop.step(batch)
        schedule.step()
    assert loop.inner.param_groups[0]["lr"] == 0.5


def test_clipping_acts_on_the_global_mean_gradient(workplace):
    norms = []
    for name, micro_batch in (("whole", None), ("pieces", 3)):
        with potluck.start(name, device="cpu", micro_batch=micro_batch) as run:
            loop = Loop(run)
            for _ in run.epochs(1, max_steps=1):
                for batch in loop.loader:
                    run.backward(loop.loss(batch))
                    norm = run.clip_gradients(0.01)
                    if norm is not None:
                        norms.append(norm.item())
                        after = torch.cat([p.grad.flatten() for p in loop.model.parameters()]).norm()
                        assert after.item() == pytest.approx(0.01, rel=1e-3)
                    loop.optimizer.step()
                    loop.optimizer.zero_grad()
    assert norms[0] == pytest.approx(norms[1], rel=1e-12)
    assert len(norms) == 2


def test_a_spoiled_step_is_tried_again_with_the_same_samples(workplace, monkeypatch):
    group = FakeGroup(verdicts=[True, False, False, True, False, True])
    monkeypatch.setattr("potluck.engine.start.SoloGroup", lambda: group)
    with potluck.start("spoiled", device="cpu") as run:
        loop = Loop(run, scheduler=True)
        batches = []
        for _ in run.epochs(1):
            for batch in loop.loader:
                batches.append((run.step, batch[0]))
                loop.step(batch)
                loop.scheduler.step()
        assert [step for step, _ in batches] == [part.step for part in group.begun] == [0, 1, 1, 1, 2, 2]
        assert torch.equal(batches[1][1], batches[3][1])
        assert loop.inner.param_groups[0]["lr"] == 0.5**3
        spoiled = loop.model[0].weight.clone()
    monkeypatch.setattr("potluck.engine.start.SoloGroup", FakeGroup)
    with potluck.start("calm", device="cpu") as run:
        loop = Loop(run, scheduler=True)
        for _ in run.epochs(1):
            for batch in loop.loader:
                loop.step(batch)
                loop.scheduler.step()
        assert torch.equal(spoiled, loop.model[0].weight)


def test_the_prepared_model_looks_like_the_model(loop):
    assert list(loop.prepared.state_dict()) == list(loop.model.state_dict())
    assert [name for name, _ in loop.prepared.named_parameters()] == [n for n, _ in loop.model.named_parameters()]
    loop.model.note = "mine"
    assert loop.prepared.note == "mine"
    assert not hasattr(loop.prepared, "nonsense")
    assert loop.prepared.module is loop.model


def test_events_and_summary_tell_what_happened(workplace):
    train("told", data=make_data(20), global_batch=8, epochs=2)
    steps = events("told", StepCommitted)
    assert [event.step for event in steps] == [1, 2, 3, 4, 5, 6]
    assert [event.samples for event in steps] == [8, 8, 4] * 2
    assert events("told", RunEnded)[-1].reason == "finished"
    summary = json.loads((potluck_folder("told") / "logs" / "rank_0_metrics.json").read_text())
    assert (summary["state"], summary["step"], len(summary["epochs"])) == ("finished", 6, 2)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_work_and_reading_are_timed_under_their_names_however_small_the_pieces(workplace, micro_batch):
    class Sleepy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = make_mlp()

        def forward(self, inputs):
            time.sleep(0.02)
            return self.inner(inputs)

    def collate(samples):
        time.sleep(0.003)
        return torch.utils.data.default_collate(samples)

    model = Sleepy()
    with potluck.start("timed", device="cpu", micro_batch=micro_batch) as run:
        prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        loader = run.loader(make_data(24), global_batch=8, collate=collate)
        for _ in run.epochs(1):
            for inputs, targets in loader:
                run.backward(nn.functional.cross_entropy(prepared(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()
    num_pieces = 1 if micro_batch is None else 8 // micro_batch
    timings = [event.timing for event in events("timed", StepCommitted)]
    assert len(timings) == 3
    for timing in timings:
        assert timing.compute_s >= 0.02 * num_pieces
        assert timing.data_wait_s >= 0.003 * num_pieces
    # A busy computer may hold up the reading of some steps; work that counts as reading would be in all of them.
    assert min(timing.data_wait_s for timing in timings) < 0.02 * num_pieces


def test_metrics_of_ones_own_are_kept(loop):
    loop.run.log(temperature=torch.tensor(21.5), fan=3)
    assert events("loop", MetricsLogged)[0].values == {"temperature": 21.5, "fan": 3.0}


def test_an_error_in_the_script_is_kept_as_the_reason(workplace):
    def fail():
        with potluck.start("fails", device="cpu"):
            raise ValueError("bad luck")

    with pytest.raises(ValueError, match="bad luck"):
        fail()
    assert events("fails", RunEnded)[-1].message == "ValueError: bad luck"


def test_a_run_is_not_overwritten(workplace):
    train("one", epochs=1)
    with pytest.raises(RunFolderError, match="already holds a run"):
        train("one", epochs=1)


def test_bad_arguments_are_told(workplace):
    for arguments in ({"micro_batch": 0}, {"mixed_precision": "fp8"}, {"device": "toaster"}, {"device": "cuda:99"}):
        with pytest.raises(SettingsError):
            potluck.start("bad", **arguments)
    with pytest.raises(SettingsError, match="which run"):
        potluck.start(resume=True)


def test_resume_starts_at_zero_with_a_word_when_there_is_nothing_yet(workplace, capfd):
    _, step = train("new", epochs=1, max_steps=2, resume=True)
    assert step == 2
    assert "no whole checkpoint: training begins at step 0" in capfd.readouterr().err


def test_resuming_with_other_data_is_refused(workplace):
    train("one", epochs=1)
    with pytest.raises(CheckpointError, match="global_batch was 8, now 16"):
        train("one", epochs=2, global_batch=16, resume=True)
    with pytest.raises(CheckpointError, match="another model"):
        train("one", epochs=2, model=nn.Linear(12, 3).double(), resume=True)


def test_a_step_is_told_in_words_of_the_user():
    step = Step(number=4, epoch=0, global_batch=8, num_micro_batches=1)
    step.hand_out(8)
    with pytest.raises(UsageError, match="step 5"):
        step.finish()


def test_numbers_that_are_none_can_be_told_and_read(workplace):
    with pytest.raises(SystemExit), potluck.start("nan", device="cpu") as run:
        loop = Loop(run)
        for _ in run.epochs(1):
            for batch in loop.loader:
                run.backward(loop.loss(batch) * float("nan"))
                loop.optimizer.step()
                loop.optimizer.zero_grad()
            run.log(bad=float("inf"))
            scores = run.evaluate(make_data(8), lambda inputs, _: {"x": loop.prepared(inputs).sum(1)})
    assert str(scores["x"]) == "nan"
    summary = json.loads((potluck_folder("nan") / "logs" / "rank_0_metrics.json").read_text())
    assert (summary["loss"], summary["metrics"]["bad"], summary["scores"]["held_out_x"]) == (None, None, None)


def test_clearing_the_model_between_micro_batches_does_nothing(workplace):
    def train_with(name, clear):
        model = make_mlp()
        with potluck.start(name, device="cpu", micro_batch=3) as run:
            prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            for _ in run.epochs(1) if run.loader(make_data(24), global_batch=8) else ():
                for inputs, targets in run._loader:
                    run.backward(nn.functional.cross_entropy(prepared(inputs), targets))
                    optimizer.step()
                    clear(prepared, optimizer)
        return model[0].weight

    by_model = train_with("model", lambda model, _: model.zero_grad())
    assert torch.equal(by_model, train_with("optimizer", lambda _, optimizer: optimizer.zero_grad()))


def test_the_loader_alone_is_told_to_use_epochs(loop):
    with pytest.raises(UsageError, match=r"outside run\.epochs"):
        next(iter(loop.loader))


def test_ending_early_saves_and_counts_as_finished(workplace):
    with potluck.start("early", device="cpu") as run:
        loop = Loop(run)
        for epoch in run.epochs(5):
            for batch in loop.loader:
                loop.step(batch)
            if epoch == 1:
                break
    assert (potluck_folder("early") / "checkpoints" / "model_epoch_2.pth").is_file()
    assert events("early", RunEnded)[-1].reason == "finished"


def test_a_step_left_in_the_middle_leaves_no_gradient_behind(workplace):
    def train_with(name, *, leaves):
        with potluck.start(name, device="cpu", micro_batch=3) as run:
            loop = Loop(run)
            for _ in run.epochs(1):
                for times in (1, 2) if leaves else (2,):  # the second loop goes on with the same epoch
                    for batch in loop.loader:
                        loop.run.backward(loop.loss(batch))
                        if times == 1 and run.step == 1:
                            break
                        loop.optimizer.step()
                        loop.optimizer.zero_grad()
            return loop.model[0].weight

    assert torch.equal(train_with("leaves", leaves=True), train_with("stays", leaves=False))


def test_a_failed_start_may_be_repeated_under_its_name(workplace):
    with pytest.raises(ValueError, match="oops"), potluck.start("again", device="cpu"):
        raise ValueError("oops")
    train("again", epochs=1)
    with pytest.raises(RunFolderError, match="already holds a run") as caught:
        train("again", epochs=1)
    assert "resume=True" in caught.value.fix


def test_a_first_error_is_not_hidden_by_a_later_one(workplace, monkeypatch):
    from potluck.engine.steps.journal import Journal

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "save_summary", full)
    with pytest.raises(ValueError, match="the real one"), potluck.start("a", device="cpu") as run:
        raise ValueError("the real one")
    with pytest.raises(OSError, match="No space"), potluck.start("b", device="cpu"):
        pass
    monkeypatch.undo()
    monkeypatch.chdir(workplace)
    with potluck.start("a", device="cpu") as run:  # the lock is free
        assert run.step == 0


def test_hooks_and_late_groups_are_the_optimizers_own(workplace):
    model, seen = make_mlp(), []
    *early, late = model.parameters()
    before = late.detach().clone()
    with potluck.start("late", device="cpu") as run:
        prepared, optimizer = run.prepare(model, inner := torch.optim.SGD(early, lr=0.1))
        optimizer.register_step_post_hook(lambda *_: seen.append(1))
        optimizer.add_param_group({"params": [late], "lr": 0.5})
        assert [group["lr"] for group in inner.param_groups] == [0.1, 0.5]
        loader = run.loader(make_data(8), global_batch=8)
        for _ in run.epochs(1):
            for inputs, targets in loader:
                run.backward(nn.functional.cross_entropy(prepared(inputs), targets))
                gradient = late.grad.clone()
                optimizer.step()
    assert len(seen) == 1
    assert torch.allclose(late, before - 0.5 * gradient)


def test_nothing_to_train_is_told(workplace):
    model = make_mlp().requires_grad_(False)
    with potluck.start("a", device="cpu") as run, pytest.raises(UsageError, match="nothing to train"):
        run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_learning_rate_of_numpy_can_be_saved(workplace):
    import numpy

    model = make_mlp()
    with potluck.start("numpy", device="cpu") as run:
        prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=numpy.float64(0.1)))
        loader = run.loader(make_data(8), global_batch=8)
        for _ in run.epochs(1):
            for inputs, targets in loader:
                run.backward(nn.functional.cross_entropy(prepared(inputs), targets))
                optimizer.step()
    with potluck.start("numpy", device="cpu", resume=True) as run:
        assert run.step == 1
