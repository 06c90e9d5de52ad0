import pytest
import torch
from torch import nn

import potluck
from potluck.core.errors import UsageError
from tests.training import make_data, make_mlp


def measure_with(model):
    def measure(inputs, targets):
        output = model(inputs)
        return {
            "loss": nn.functional.cross_entropy(output, targets, reduction="none"),
            "accuracy": output.argmax(1) == targets,
        }

    return measure


@pytest.mark.parametrize("batch", [1, 7, 50, 1000])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_the_mean_is_exact_for_any_batch(workplace, batch, micro_batch):
    data, model = make_data(50), make_mlp()
    output = model(data.tensors[0])
    with potluck.start("a", device="cpu", micro_batch=micro_batch) as run:
        prepared, _ = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        scores = run.evaluate(data, measure_with(prepared), batch=batch)
    assert scores["loss"] == pytest.approx(nn.functional.cross_entropy(output, data.tensors[1]).item(), abs=1e-14)
    assert scores["accuracy"] == (output.argmax(1) == data.tensors[1]).double().mean().item()


def test_a_batch_that_does_not_fit_is_evaluated_in_smaller_ones(workplace):
    sizes = []

    def measure(inputs, targets):
        sizes.append(len(inputs))
        if len(inputs) > 6:
            raise torch.OutOfMemoryError("out of memory")
        return {"target": targets.double()}

    data = make_data(50)
    with potluck.start("a", device="cpu") as run:
        scores = run.evaluate(data, measure)
        assert scores["target"] == pytest.approx(data.tensors[1].double().mean().item(), abs=1e-14)
        assert sizes == [50, 25, 12, *[6] * 8, 2]
        with pytest.raises(torch.OutOfMemoryError):
            run.evaluate(data, lambda inputs, targets: measure(torch.zeros(7), targets))


def test_tokens_are_counted_one_by_one(workplace):
    lengths = [1, 5, 2, 9]
    data = torch.utils.data.TensorDataset(torch.tensor(lengths))
    with potluck.start("a", device="cpu") as run:
        scores = run.evaluate(data, lambda n: {"n": torch.cat([torch.full((int(k),), float(k)) for k in n])}, batch=3)
    assert scores["n"] == sum(n * n for n in lengths) / sum(lengths)


def test_a_mean_of_means_is_refused(workplace):
    with potluck.start("a", device="cpu") as run, pytest.raises(UsageError, match="mean of means") as caught:
        run.evaluate(make_data(10), lambda inputs, targets: {"loss": inputs.mean()})
    assert "reduction='none'" in caught.value.fix


def test_evaluation_leaves_the_model_as_it_was(workplace):
    model = nn.Sequential(nn.BatchNorm1d(12), nn.Dropout(0.5), nn.Linear(12, 3)).double()
    model[0].eval()  # a user may keep a layer frozen
    with potluck.start("a", device="cpu") as run:
        prepared, _ = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        modes = []

        def measure(inputs, targets):
            modes.append(any(module.training for module in model.modules()) or torch.is_grad_enabled())
            return measure_with(prepared)(inputs, targets)

        first, again = run.evaluate(make_data(), measure), run.evaluate(make_data(), measure)
    assert first == again
    assert not any(modes)
    assert [module.training for module in model.modules()] == [True, False, True, True]
