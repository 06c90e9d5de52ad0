"""Ordinary PyTorch habits: each works as in PyTorch, or is answered with a sentence and a fix.

The table in docs/training-script.md has a row for each of these tests.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

import potluck
from potluck.core.errors import CheckpointError, DataError, UsageError
from potluck.engine.order.position import DataOrder
from potluck.events.log import read_records
from potluck.events.state import replay
from potluck.events.types import EpochEnded
from tests.habits import HABITS, Numbered, make_gan, plain_gan, train_by_habit
from tests.training import largest_difference, make_data, make_mlp, make_optimizer, train, whole


@pytest.fixture
def run(workplace):
    with potluck.start("habit", device="cpu") as run:
        yield run


def records(name):
    [path] = (Path("experiments") / name / "events").glob("*.jsonl")
    return list(read_records(path))


def loss_of(model, batch, **options):
    return nn.functional.cross_entropy(model(batch[0]), batch[1], **options)


# Models and optimizers


def test_two_models_and_two_optimizers_are_trained_as_in_plain_pytorch(workplace):
    found, step = train_by_habit("gan", "gan")
    wanted = [parameter for model in plain_gan(DataOrder(100, 16, seed=5)) for parameter in model.parameters()]
    assert step == 14
    assert largest_difference(found, wanted) < 1e-12


def test_two_optimizers_are_resumed_exactly(workplace):
    whole_run, _ = train_by_habit("gan", "whole", epochs=4)
    train_by_habit("gan", "parts", epochs=2)
    resumed, step = train_by_habit("gan", "parts", epochs=4, options={"resume": True})
    assert step == 28
    assert largest_difference(whole_run, resumed) == 0


def test_a_step_of_two_optimizers_counts_when_the_loop_is_left(run):
    generator, critic = make_gan()
    one, two = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    generator, critic, one, two = run.prepare(generator, critic, one, two)
    for _ in run.epochs(1):
        for inputs, _ in run.loader(make_data(24), global_batch=8):
            run.backward(critic(generator(inputs[:, :4])).mean())
            one.step()
            two.step()
            if run.step == 1:
                break
        assert run.step == 2


def test_resuming_with_fewer_optimizers_is_refused(workplace):
    train_by_habit("gan", "gan", epochs=1)
    _, critic = make_gan()
    with potluck.start("gan", device="cpu", seed=5, resume=True) as run:
        run.prepare(critic, torch.optim.Adam(critic.parameters()))
        with pytest.raises(CheckpointError, match=r"holds 2 models, run\.prepare got 1"):
            run.epochs(2)


@pytest.mark.parametrize("micro_batch", [None, 5])
def test_two_optimizers_for_one_model_share_a_backward_pass(workplace, micro_batch):
    found, _ = train_by_habit("two_optimizers_for_one_model", "two", options={"micro_batch": micro_batch})
    model, order, data = make_mlp(), DataOrder(100, 16, seed=5), make_data(100)
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(model[3].parameters(), lr=0.01)
    for step in range(14):
        loss_of(model, data[order.indices(whole(order, step))]).backward()
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
    assert largest_difference(found, list(model.parameters())) < 1e-12


def test_two_backward_passes_and_micro_batches_are_refused(workplace):
    with pytest.raises(UsageError, match="second backward pass") as caught:
        train_by_habit("gan", "gan", options={"micro_batch": 5})
    assert "leave micro_batch out" in caught.value.fix


def test_several_optimizers_in_fp16_are_refused(workplace):
    with pytest.raises(UsageError, match="one loss scale") as caught:
        train_by_habit("two_optimizers_for_one_model", "two", options={"mixed_precision": "fp16"})
    assert "bf16" in caught.value.fix


def test_prepare_takes_any_order_and_returns_it(run):
    generator, critic = make_gan()
    one, two = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    loader = DataLoader(make_data(20), batch_size=4)
    schedule = torch.optim.lr_scheduler.StepLR(one, 1)
    prepared = run.prepare(loader, one, critic, schedule, generator, two)
    assert prepared[0].dataset is loader.dataset
    assert [prepared[1].inner, prepared[2].module, prepared[3].inner] == [one, critic, schedule]
    assert [prepared[4].module, prepared[5].inner] == [generator, two]
    assert run.prepare(generator) is prepared[4]
    assert run.prepare(prepared[4]) is prepared[4]


def test_prepare_takes_a_model_alone(run):
    model = run.prepare(make_mlp())
    optimizer = run.prepare(make_optimizer("sgd", model))
    for _ in run.epochs(1):
        for batch in run.loader(make_data(8), global_batch=8):
            run.backward(loss_of(model, batch))
            optimizer.step()
    assert run.step == 1


def test_a_model_without_an_optimizer_is_told(run):
    run.prepare(make_mlp())
    with pytest.raises(UsageError, match="no optimizer yet") as caught:
        run.epochs(1)
    assert "run.prepare(optimizer)" in caught.value.fix


def test_a_loss_function_in_prepare_is_handed_back(run):
    loss_function = nn.CrossEntropyLoss()
    assert run.prepare(loss_function) is loss_function


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        (make_data(8), "run.loader(dataset, global_batch=...)"),
        (torch.amp.GradScaler("cpu"), "mixed_precision='fp16'"),
        (None, "leave out what is None"),
        (0.1, "models, optimizers"),
    ],
    ids=["dataset", "GradScaler", "None", "number"],
)
def test_prepare_refuses_what_it_cannot_prepare(run, wrong, fix):
    model = make_mlp()
    with pytest.raises(UsageError, match=r"run\.prepare cannot use a") as caught:
        run.prepare(model, make_optimizer("sgd", model), wrong)
    assert fix in caught.value.fix


def test_the_prepared_model_is_used_like_the_model(run):
    model = make_mlp()
    prepared = run.prepare(model)
    assert prepared[0] is model[0]
    assert len(prepared) == 4
    assert list(prepared) == list(model)
    assert prepared
    assert run.prepare(nn.Linear(2, 2))  # no length, and true all the same
    model.temperature = 1.0
    prepared.temperature = 0.5
    assert model.temperature == 0.5
    prepared.eval()
    assert not model.training
    assert [name for name, _ in prepared.named_parameters()] == [name for name, _ in model.named_parameters()]


# Data


def test_a_handed_over_loader_keeps_what_it_was_made_with(run):
    data = make_data(20)
    torchs = DataLoader(data, batch_size=8, shuffle=False, drop_last=True, collate_fn=lambda samples: samples)
    loader = run.loader(torchs)
    assert (len(loader), loader.batch_size, loader.drop_last, loader.dataset) == (2, 8, True, data)
    model = make_mlp()
    run.prepare(model, make_optimizer("sgd", model))
    for _ in run.epochs(1):
        batch = next(iter(loader))
        assert all(torch.equal(sample[0], data[index][0]) for index, sample in enumerate(batch))
        break


def test_the_global_batch_may_differ_from_the_handed_over_loaders(run):
    assert run.loader(DataLoader(make_data(20), batch_size=2), global_batch=10).batch_size == 10


def test_torchs_keywords_mean_what_they_mean_there(run):
    loader = run.loader(make_data(20), batch_size=8, shuffle=False, pin_memory=True, collate_fn=list)
    assert (loader.batch_size, loader.order.shuffle, loader.collate_fn) == (8, False, list)


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({}, "global_batch=..."),
        ({"batch_size": 4, "global_batch": 8}, "keep global_batch"),
        ({"batch_size": 4, "generator": torch.Generator()}, "potluck.start(seed=...)"),
        ({"batch_size": 4, "batch_sampler": [[0]]}, "sampler=..."),
        ({"batch_sise": 4}, "batch_size"),
        ({"global_batch": 4, "num_samples": 3}, "Subset"),
    ],
    ids=lambda value: "-".join(value) or "nothing" if isinstance(value, dict) else "",
)
def test_keywords_that_cannot_be_obeyed_are_told(run, arguments, fix):
    with pytest.raises(UsageError) as caught:
        run.loader(make_data(20), **arguments)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("loader", "fix"),
    [
        (DataLoader(make_data(20), batch_size=None), "give the DataLoader a batch_size"),
        (
            DataLoader(make_data(20), batch_size=4, sampler=DistributedSampler(make_data(20), 2, 0)),
            "leave the DistributedSampler out",
        ),
    ],
    ids=["no batch", "distributed"],
)
def test_a_loader_that_cannot_be_split_is_told(run, loader, fix):
    with pytest.raises(UsageError) as caught:
        run.loader(loader)
    assert fix in caught.value.fix


def test_a_sampler_draws_the_same_for_everybody(workplace):
    sampler = RandomSampler(make_data(20), replacement=True, num_samples=12, generator=torch.Generator())
    orders = []
    for name in ("one", "other"):
        with potluck.start(name, device="cpu") as run:
            torch.rand(len(name))  # whatever else was drawn before
            loader = run.loader(DataLoader(make_data(20), batch_size=4, sampler=sampler))
            orders.append([loader.order.indices(whole(loader.order, step)).tolist() for step in range(6)])
    assert orders[0] == orders[1]
    assert orders[0][:3] != orders[0][3:]
    assert len(orders[0][0]) == 4


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stream_is_read_in_its_order(workplace, num_workers):
    data = make_data(50)
    model = make_mlp()
    with potluck.start("stream", device="cpu", micro_batch=3) as run:
        prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
        loader = run.loader(Numbered(data), global_batch=8, num_workers=num_workers)
        assert len(loader) == 7
        for _ in run.epochs(2):
            for batch in loader:
                run.backward(loss_of(prepared, batch))
                optimizer.step()
                optimizer.zero_grad()
    plain = make_mlp()
    optimizer = make_optimizer("sgd", plain)
    for start in [*range(0, 50, 8)] * 2:
        loss_of(plain, data[start : min(50, start + 8)]).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert largest_difference(list(model.parameters()), list(plain.parameters())) < 1e-12


def test_a_stream_of_unknown_length_is_told(run):
    with pytest.raises(UsageError, match="how many samples an epoch has") as caught:
        run.loader(Numbered(make_data(50), has_length=False), global_batch=8)
    assert "num_samples=N" in caught.value.fix


def test_a_stream_that_ends_early_is_told(run):
    model = make_mlp()
    prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
    loader = run.loader(Numbered(make_data(10), has_length=False), global_batch=8, num_samples=16)
    with pytest.raises(DataError, match="ended after 10 samples") as caught:
        for _ in run.epochs(1):
            for batch in loader:
                run.backward(loss_of(prepared, batch))
                optimizer.step()
    assert "num_samples=10" in caught.value.fix


def test_something_that_is_no_dataset_is_told(run):
    with pytest.raises(UsageError, match="cannot read a int"):
        run.loader(5, global_batch=8)


def test_a_loader_may_be_made_in_every_epoch(run):
    model = make_mlp()
    prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
    seen = []
    for epoch in run.epochs(2):
        loader = run.loader(make_data(24), global_batch=8)
        seen += [(epoch, len(loader))]
        for batch in loader:
            run.backward(loss_of(prepared, batch))
            optimizer.step()
            optimizer.zero_grad()
    assert (seen, run.step) == ([(0, 3), (1, 3)], 6)
    plain, _ = train("plain", data=make_data(24), epochs=2)
    assert largest_difference(list(model.parameters()), plain) == 0


def test_evaluate_takes_a_loader(run):
    model = run.prepare(make_mlp())
    loader = DataLoader(make_data(20), batch_size=4)

    def measure(inputs, _):
        return {"norm": model(inputs).norm(dim=1)}

    assert run.evaluate(loader, measure) == run.evaluate(make_data(20), measure)
    with pytest.raises(UsageError, match="splits a dataset by its length"):
        run.evaluate(Numbered(make_data(20), has_length=False), measure)


# The loop


def test_one_loss_a_sample_is_averaged(workplace):
    found, _ = train_by_habit("one_loss_a_sample", "none", options={"micro_batch": 5})
    wanted, _ = train("mean", data=make_data(100), global_batch=16, seed=5)
    assert largest_difference(found, wanted) < 1e-12


def test_one_loss_a_token_is_averaged_over_what_counts(workplace):
    def train_with(name, backward):
        model = make_mlp()
        with potluck.start(name, device="cpu", micro_batch=3) as run:
            prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
            for _ in run.epochs(1):
                for inputs, targets in run.loader(make_data(24), global_batch=8):
                    kept = targets.where(inputs[:, 0] > -0.5, -100)
                    backward(run, prepared(inputs), kept, kept.ne(-100).sum())
                    optimizer.step()
                    optimizer.zero_grad()
        return list(model.parameters())

    def by_mean(run, output, targets, count):
        run.backward(nn.functional.cross_entropy(output, targets), count=count)

    def by_vector(run, output, targets, count):
        run.backward(nn.functional.cross_entropy(output, targets, reduction="none"), count=count)

    assert largest_difference(train_with("mean", by_mean), train_with("vector", by_vector)) < 1e-12


def test_clipping_by_hand_acts_on_the_whole_batch(workplace):
    found, _ = train_by_habit("clipping_by_hand", "pieces", options={"micro_batch": 3})
    wanted, _ = train_by_habit("clipping_by_hand", "whole")
    unclipped, _ = train("unclipped", data=make_data(100), global_batch=16, seed=5)
    assert largest_difference(found, wanted) < 1e-12
    assert largest_difference(unclipped, wanted) > 1e-3


def test_forgetting_zero_grad_adds_up_as_in_pytorch(workplace):
    found, _ = train_by_habit("forgetting_zero_grad", "pieces", options={"micro_batch": 3})
    model, order, data = make_mlp(), DataOrder(100, 16, seed=5), make_data(100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(14):
        loss_of(model, data[order.indices(whole(order, step))]).backward()
        optimizer.step()
    assert largest_difference(found, list(model.parameters())) < 1e-12


def test_accumulating_by_hand_is_told(run):
    model = make_mlp()
    prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))

    def accumulate():
        for _ in run.epochs(1):
            for number, batch in enumerate(run.loader(make_data(24), global_batch=8)):
                run.backward(loss_of(prepared, batch) / 2)
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()

    with pytest.raises(UsageError, match="never applied") as caught:
        accumulate()
    assert "make global_batch n times as large" in caught.value.fix


def test_backward_by_hand_is_noticed(run):
    model = make_mlp()
    prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))

    def by_hand():
        for _ in run.epochs(1):
            for batch in run.loader(make_data(24), global_batch=8):
                loss_of(prepared, batch).backward()
                optimizer.step()

    with pytest.raises(UsageError, match=r"made by loss\.backward\(\)") as caught:
        by_hand()
    assert "run.backward(loss)" in caught.value.fix


def test_leaving_the_loop_early_leaves_the_rest_of_the_epoch_out(workplace, capfd):
    found, step = train_by_habit("leaving_the_loop_early", "left", epochs=2)
    assert step == 6
    model, order, data = make_mlp(), DataOrder(100, 16, seed=5), make_data(100)
    optimizer = make_optimizer("sgd", model)
    for number in (0, 1, 2, 7, 8, 9):  # the first three steps of each epoch of seven
        loss_of(model, data[order.indices(whole(order, number))]).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert largest_difference(found, list(model.parameters())) == 0
    assert capfd.readouterr().err.count("after 3 of 7 steps: the rest of epoch 1 is left out") == 1
    ended = [record.event for record in records("left") if isinstance(record.event, EpochEnded)]
    assert [(event.epoch, event.step, event.samples, event.left_out) for event in ended] == [
        (0, 3, 48, 4),
        (1, 6, 48, 4),
    ]
    state = replay(records("left"))
    assert (state.ended, state.step, state.last_step, state.epoch, state.message) == ("finished", 6, 6, 2, "")
    names = sorted(path.name for path in Path("experiments/left/checkpoints").iterdir())
    assert names == ["model_epoch_1.pth", "model_epoch_2.pth"]


def test_a_run_that_leaves_the_loop_early_is_resumed_exactly(workplace):
    once, _ = train_by_habit("leaving_the_loop_early", "once", epochs=4)
    train_by_habit("leaving_the_loop_early", "twice", epochs=2)

    def go_on():
        model = make_mlp()
        with potluck.start("twice", device="cpu", seed=5, resume=True) as run:
            prepared, optimizer = run.prepare(model, make_optimizer("sgd", model))
            loader, seen = run.loader(make_data(100), global_batch=16), []
            for epoch in run.epochs(4):
                seen.append(epoch)
                for number, batch in enumerate(loader):
                    run.backward(loss_of(prepared, batch))
                    optimizer.step()
                    optimizer.zero_grad()
                    if number == 2:
                        break
        assert (seen, run.step) == ([2, 3], 12)
        return list(model.parameters())

    assert largest_difference(once, go_on()) == 0
    assert replay(records("twice")).last_step == 12


def test_every_habit_leaves_a_run_that_reports_can_read(workplace):
    for name in HABITS:
        train_by_habit(name, name)
        summary = json.loads((Path("experiments") / name / "logs" / "rank_0_metrics.json").read_text())
        assert (summary["state"], summary["step"]) == ("finished", summary["last_step"]), name
