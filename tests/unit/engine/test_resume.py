"""Law: a run that stops anywhere and goes on gives the parameters of one that never stopped."""

import pytest
import torch

import potluck
from tests.training import largest_difference, make_data, make_mlp, make_optimizer, train

POTLUCK = {"data": make_data(50), "global_batch": 8, "epochs": 3}  # 7 steps an epoch, the last of 2 samples


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("at", [1, 5, 7, 10, 14, 20])
def test_a_run_in_two_parts_is_bit_identical(workplace, at, optimizer):
    whole, _ = train("whole", model=make_mlp(dropout=0.3), optimizer=optimizer, **POTLUCK)
    train("parts", model=make_mlp(dropout=0.3), optimizer=optimizer, max_steps=at, **POTLUCK)
    parts, step = train("parts", model=make_mlp(dropout=0.3), optimizer=optimizer, resume=True, **POTLUCK)
    assert step == 21
    assert largest_difference(whole, parts) == 0


def test_fp16_resumes_with_its_scale(workplace):
    """An overflow in the second step has halved the scale; results alone do not show it, a scale is a power of two."""
    data = make_data(48, dtype=torch.float32)

    def train_half(name, resume=False, **options):
        model = make_mlp(torch.float32)
        with potluck.start(name, device="cpu", mixed_precision="fp16", resume=resume) as run:
            prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
            for _ in run.epochs(3, **options):
                for inputs, targets in run.loader(data, global_batch=8):
                    factor = float("inf") if run.step == 1 else 1.0
                    run.backward(torch.nn.functional.cross_entropy(prepared(inputs), targets) * factor)
                    optimizer.step()
                    optimizer.zero_grad()
            return list(model.parameters()), run._parts.precision.loss_scale

    whole, scale = train_half("whole")
    assert scale == 2.0**15
    train_half("parts", max_steps=7)
    parts, scale = train_half("parts", resume=True)
    assert scale == 2.0**15
    assert largest_difference(whole, parts) == 0


def test_a_schedule_resumes_where_it_was(workplace):
    def train_with_schedule(name, **options):
        model = make_mlp()
        inner = make_optimizer("sgd", model)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(inner, T_max=14)
        rates = []
        with potluck.start(name, device="cpu", resume=options.pop("resume", False), checkpoint_every=1) as run:
            prepared, optimizer, scheduler = run.prepare(model, inner, schedule)
            loader = run.loader(make_data(50), global_batch=8)
            for _ in run.epochs(2, **options):
                for inputs, targets in loader:
                    run.backward(torch.nn.functional.cross_entropy(prepared(inputs), targets))
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                    rates.append(inner.param_groups[0]["lr"])
        return rates

    whole = train_with_schedule("whole")
    parts = train_with_schedule("parts", max_steps=4) + train_with_schedule("parts", resume=True)
    assert whole == parts


def test_a_run_can_begin_from_another_runs_checkpoint(workplace):
    whole, _ = train("whole", **POTLUCK)
    train("source", max_steps=10, **POTLUCK)
    [path] = (workplace / "experiments" / "source" / "checkpoints").glob("*_step_10.pth")
    found, _ = train("target", resume_from=path, **POTLUCK)
    assert largest_difference(whole, found) == 0


def test_a_damaged_checkpoint_is_skipped_with_a_word(workplace, capfd):
    whole, _ = train("whole", **POTLUCK)
    train("parts", checkpoint_every=2, max_steps=9, **POTLUCK)
    folder = workplace / "experiments" / "parts" / "checkpoints"
    newest = folder / "model_epoch_2_step_9.pth"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    capfd.readouterr()
    parts, _ = train("parts", resume=True, **POTLUCK)
    said = capfd.readouterr().err
    assert "model_epoch_2_step_9.pth is damaged: its checksum does not match: skipped" in said
    assert "going on after step 8" in said
    assert largest_difference(whole, parts) == 0


class Counter:
    """An object of the script with a state."""

    def __init__(self):
        self.seen = 0

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def test_any_object_with_a_state_resumes_with_the_run(workplace):
    def count(**options):
        counter, model = Counter(), make_mlp()
        with potluck.start("counted", device="cpu", resume=options.pop("resume", False)) as run:
            prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
            assert run.prepare(counter) is counter
            for _ in run.epochs(3, **options):
                for inputs, targets in run.loader(make_data(50), global_batch=8):
                    run.backward(torch.nn.functional.cross_entropy(prepared(inputs), targets))
                    optimizer.step()
                    optimizer.zero_grad()
                    counter.seen += len(inputs)
        return counter.seen

    assert count(max_steps=9) == 50 + 16
    assert count(resume=True) == 150


def test_a_script_that_restores_by_itself_goes_on_at_its_step(workplace):
    """The tools that Potluck is put under have checkpoints of their own."""
    whole, _ = train("whole", model=make_mlp(dropout=0.3), optimizer="adamw", **POTLUCK)
    model = make_mlp(dropout=0.3)
    inner = make_optimizer("adamw", model)
    losses = []
    for part in (10, None):
        with potluck.start(f"part-{part}", device="cpu") as run:
            prepared, optimizer = run.prepare(model, inner)
            if part is None:
                run.go_on_after(10)
            for _ in run.epochs(3, max_steps=part):
                for inputs, targets in run.loader(POTLUCK["data"], global_batch=8):
                    run.backward(torch.nn.functional.cross_entropy(prepared(inputs), targets))
                    optimizer.step()
                    optimizer.zero_grad()
                    losses.append(run.loss)
            assert run.writes
            assert run.agree({"a": 2.5, "b": -1.0}) == {"a": 2.5, "b": -1.0}
    assert run.step == len(losses) == 21
    assert all(isinstance(loss, float) for loss in losses)
    assert largest_difference(whole, list(model.parameters())) == 0
