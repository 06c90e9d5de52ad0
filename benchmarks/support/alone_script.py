"""The training script of benchmarks.alone: a small CNN, so many samples a step, so many steps.

python -m benchmarks.support.alone_script BATCH STEPS WIDTH ...           in a run of Potluck
python -m benchmarks.support.alone_script --plain BATCH SECONDS WIDTH ... a plain loop; prints its samples/s
"""

import sys
import time

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import potluck
from potluck.workloads.models.simple_cnn import SimpleCNN

NUM_CLASSES = 10
KEPT_SAMPLES = 2048


def make(widths: tuple[int, ...]) -> tuple[SimpleCNN, torch.optim.Optimizer, TensorDataset]:
    """The model, its optimizer and the data, the same on every machine."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = SimpleCNN(NUM_CLASSES, widths=widths)
    data = TensorDataset(torch.randn(KEPT_SAMPLES, 3, 32, 32), torch.randint(NUM_CLASSES, (KEPT_SAMPLES,)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), data


def train(batch: int, num_steps: int, widths: tuple[int, ...]) -> None:
    """One worker's part of the run."""
    model, inner, data = make(widths)
    run = potluck.start(device="cpu")
    prepared, optimizer = run.prepare(model, inner)
    loader = run.loader(data, global_batch=batch)
    for _ in run.epochs(1_000_000, max_steps=num_steps):
        for images, wanted in loader:
            run.backward(cross_entropy(prepared(images), wanted))
            optimizer.step()
            optimizer.zero_grad()


def train_plainly(batch: int, seconds: float, widths: tuple[int, ...]) -> float:
    """Samples/s of the loop that a person writes without Potluck."""
    model, optimizer, data = make(widths)
    images, targets = data.tensors
    times = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for part in torch.split(torch.randperm(len(images)), batch):
            since = time.perf_counter()
            cross_entropy(model(images[part]), targets[part]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            times.append((time.perf_counter() - since, len(part)))
    warm = times[len(times) // 5 :]
    return sum(size for _, size in warm) / sum(taken for taken, _ in warm)


if __name__ == "__main__":
    is_plain = sys.argv[1] == "--plain"
    size, amount, *channels = sys.argv[1 + is_plain :]
    if is_plain:
        print(f"samples/s {train_plainly(int(size), float(amount), tuple(map(int, channels)))}")
    else:
        train(int(size), int(amount), tuple(map(int, channels)))
