"""Prints this machine's parity reading as one line of JSON: `python -m potluck.probes.parity`.

The reading is the same on every machine whose torch computes the same: data order and initial weights in every bit, a
training step to a tolerance. It runs in a process of its own, because it sets torch's threads and kernels.
"""

import hashlib
import random
from collections.abc import Iterable

import msgspec

from potluck.core.environment import use_plain_kernels

use_plain_kernels()  # before torch is imported

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from potluck.engine.order.position import DataOrder, Slice  # noqa: E402
from potluck.engine.order.seeding import seed_host  # noqa: E402
from potluck.machine.parity import ParityReading, StepReading  # noqa: E402

_SEED = 16
_NUM_SAMPLES = 8
_NUM_WORDS = 6
_VOCABULARY = 20
_WIDTH = 16
_NUM_CLASSES = 5
_VALUES_PER_TENSOR = 4


class SmallModel(nn.Module):
    """Layers that most models are made of: convolution, normalization, embedding, attention, recurrence, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, _WIDTH, 3, padding=1)
        self.batch_norm = nn.BatchNorm2d(_WIDTH)
        self.embedding = nn.Embedding(_VOCABULARY, _WIDTH)
        self.attention = nn.TransformerEncoderLayer(_WIDTH, 2, 2 * _WIDTH, dropout=0.0, batch_first=True)
        self.recurrence = nn.GRU(_WIDTH, _WIDTH, batch_first=True)
        self.head = nn.Linear(2 * _WIDTH, _NUM_CLASSES)

    def forward(self, images: Tensor, words: Tensor) -> Tensor:
        seen = F.gelu(self.batch_norm(self.convolution(images))).mean(dim=(2, 3))
        read, _ = self.recurrence(self.attention(self.embedding(words)))
        scores: Tensor = self.head(torch.cat([seen, read[:, -1]], dim=1))
        return scores


def compute_reading() -> ParityReading:
    """The reading; sets this process's number of threads and its random generators."""
    torch.set_num_threads(1)  # the order of additions, and so the last bit, depends on the number of threads
    data_order = _digest([*_orders(), *_draws()])
    torch.manual_seed(_SEED)
    model = SmallModel()
    initial_weights = _digest(parameter.detach() for parameter in model.parameters())
    start = {name: value.clone() for name, value in model.state_dict().items()}
    single = _step(model)
    model.load_state_dict(start)
    return ParityReading(
        data_order=data_order, initial_weights=initial_weights, float32=single, float64=_step(model.double())
    )


def _orders() -> Iterable[Tensor]:
    """Potluck's own order of the samples, in two epochs of two datasets."""
    for num_samples in (1_000, 100_000):
        order = DataOrder(num_samples=num_samples, global_batch=num_samples, seed=_SEED)
        for epoch in range(2):
            yield order.indices(Slice(epoch, 0, num_samples))


def _draws() -> Iterable[Tensor]:
    """Random numbers as a script's sampler or dataset draws them, after Potluck has seeded the generators."""
    seed_host(_SEED)
    yield torch.tensor(random.sample(range(1_000), 100))
    yield torch.from_numpy(np.random.permutation(1_000))
    yield torch.rand(100)
    yield torch.multinomial(torch.arange(1, 101, dtype=torch.float64), 100, replacement=True)


def _step(model: nn.Module) -> StepReading:
    """One step of AdamW on fixed inputs, in the type of the model's parameters."""
    parameters = list(model.parameters())
    count = torch.arange(_NUM_SAMPLES * 3 * 8 * 8)
    images = ((count * 37) % 101 / 101 - 0.5).to(parameters[0].dtype).reshape(_NUM_SAMPLES, 3, 8, 8)
    words = (torch.arange(_NUM_SAMPLES * _NUM_WORDS) * 7 % _VOCABULARY).reshape(_NUM_SAMPLES, _NUM_WORDS)
    labels = torch.arange(_NUM_SAMPLES) % _NUM_CLASSES
    # A large epsilon: AdamW divides by the gradient, and some gradients here are zero but for rounding.
    optimizer = torch.optim.AdamW(parameters, lr=0.01, eps=1e-3)
    before = F.cross_entropy(model(images, words), labels)
    before.backward()  # type: ignore[no-untyped-call]
    gradient = _values(parameter.grad for parameter in parameters if parameter.grad is not None)
    optimizer.step()
    with torch.no_grad():
        after = F.cross_entropy(model(images, words), labels)
    return StepReading(loss=(before.item(), after.item()), gradient=gradient, parameters=_values(parameters))


def _values(tensors: Iterable[Tensor]) -> tuple[float, ...]:
    """A few values of each tensor, spread over it."""
    found: list[float] = []
    for tensor in tensors:
        flat = tensor.detach().flatten()
        found += flat[:: max(1, flat.numel() // _VALUES_PER_TENSOR)][:_VALUES_PER_TENSOR].tolist()
    return tuple(found)


def _digest(tensors: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    print(msgspec.json.encode(compute_reading()).decode())  # noqa: T201  the process that asked reads it
