"""Small training problems for the tests, written the way a user writes them."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import potluck

NUM_FEATURES = 12
NUM_CLASSES = 3


def make_data(num_samples=50, dtype=torch.float64):
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(num_samples, NUM_FEATURES, generator=generator, dtype=dtype)
    targets = inputs[:, :NUM_CLASSES].argmax(1)
    return TensorDataset(inputs, targets)


def make_mlp(dtype=torch.float64, dropout=0.0):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(NUM_FEATURES, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, NUM_CLASSES)).to(
        dtype
    )


def make_optimizer(name, model):
    match name:
        case "sgd":
            return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        case "plain sgd":
            return torch.optim.SGD(model.parameters(), lr=0.1)
        case "adamw":
            return torch.optim.AdamW(model.parameters(), lr=0.01)


def train(
    name, *, model=None, data=None, optimizer="sgd", global_batch=8, epochs=2, max_steps=None, num_workers=0, **options
):
    """Train with the loop of the README; return the model's parameters and the run's final step."""
    model = make_mlp() if model is None else model
    inner = make_optimizer(optimizer, model)
    with potluck.start(name, device="cpu", **options) as run:
        prepared, stepper = run.prepare(model, inner)
        loader = run.loader(data or make_data(), global_batch=global_batch, num_workers=num_workers)
        for _ in run.epochs(epochs, max_steps=max_steps):
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(prepared(inputs), targets)
                run.backward(loss)
                stepper.step()
                stepper.zero_grad()
        return [parameter.detach().clone() for parameter in model.parameters()], run.step


def train_plainly(order, *, model=None, data=None, optimizer="sgd", epochs=2):
    """The same training without Potluck: one process, whole batches, in the given order of samples."""
    model = make_mlp() if model is None else model
    data = make_data() if data is None else data
    inner = make_optimizer(optimizer, model)
    for step in range(epochs * order.steps_per_epoch):
        indices = order.indices(whole(order, step))
        inputs, targets = data[indices]
        nn.functional.cross_entropy(model(inputs), targets).backward()
        inner.step()
        inner.zero_grad()
    return [parameter.detach().clone() for parameter in model.parameters()]


def whole(order, step):
    from potluck.engine.order.position import Slice

    return Slice(step, 0, order.batch_of(step))


def largest_difference(first, second):
    return max((a - b).abs().max().item() for a, b in zip(first, second, strict=True))
