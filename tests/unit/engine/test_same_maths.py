"""Law: whatever the micro-batches, training gives what one process with whole batches gives."""

import pytest
import torch
from torch import nn

from potluck.engine.order.position import DataOrder
from tests.training import largest_difference, make_data, make_mlp, train, train_plainly


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("micro_batch", [None, 1, 7, 32])
def test_any_micro_batch_matches_a_plain_loop(workplace, micro_batch, optimizer):
    data = make_data(100)  # the last global batch has 4 samples
    found, step = train("a", data=data, optimizer=optimizer, global_batch=32, epochs=3, micro_batch=micro_batch, seed=5)
    wanted = train_plainly(DataOrder(100, 32, seed=5), data=data, optimizer=optimizer, epochs=3)
    assert step == 12
    # Whole batches are not even rounded differently.
    assert largest_difference(found, wanted) <= (1e-10 if micro_batch in (1, 7) else 0)


def test_a_cap_of_7_with_a_global_batch_of_32_equals_the_uncapped_run(workplace):
    data = make_data(96)
    capped, _ = train("capped", data=data, global_batch=32, epochs=4, micro_batch=7)
    uncapped, _ = train("uncapped", data=data, global_batch=32, epochs=4)
    assert largest_difference(capped, uncapped) < 1e-10


def test_without_the_weighting_the_law_breaks(workplace, monkeypatch):
    """33 samples in micro-batches of 7, 7, 7, 6, 6: a plain mean of means is off."""
    from potluck.engine.steps.step import Step

    weighted, _ = train("weighted", data=make_data(33), global_batch=33, micro_batch=7)
    monkeypatch.setattr(Step, "add", lambda step, loss, count, add=Step.add: min(0.2, add(step, loss, count)))
    unweighted, _ = train("unweighted", data=make_data(33), global_batch=33, micro_batch=7)
    assert largest_difference(weighted, unweighted) > 1e-6


def test_a_mean_over_tokens_is_weighted_by_tokens(workplace):
    """Sequences of different length: the count travels with the loss."""
    import potluck

    lengths = torch.tensor([1, 5, 2, 9, 4, 3, 8])
    data = make_data(7)

    def train_on(name, micro_batch):
        model = make_mlp()
        with potluck.start(name, device="cpu", micro_batch=micro_batch) as run:
            prepared, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
            dataset = torch.utils.data.TensorDataset(*data.tensors, lengths)
            loader = run.loader(dataset, global_batch=7)
            for _ in run.epochs(3):
                for inputs, targets, tokens in loader:
                    each = nn.functional.cross_entropy(prepared(inputs), targets, reduction="none")
                    run.backward((each * tokens).sum() / tokens.sum(), count=tokens.sum())
                    optimizer.step()
                    optimizer.zero_grad()
        return [parameter.detach() for parameter in model.parameters()]

    assert largest_difference(train_on("whole", None), train_on("pieces", 2)) < 1e-10


def test_dropout_draws_the_same_when_a_run_is_repeated(workplace):
    first, _ = train("first", model=make_mlp(dropout=0.5))
    again, _ = train("again", model=make_mlp(dropout=0.5))
    other, _ = train("other", model=make_mlp(dropout=0.5), seed=1)
    assert largest_difference(first, again) == 0
    assert largest_difference(first, other) > 0
