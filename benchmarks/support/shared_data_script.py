"""What `benchmarks.shared_data` trains: a small network on bytes of files, or on rows of one memory-mapped file."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import potluck
from potluck.core.environment import read_environment

SAMPLE_BYTES = 100_000
READ_BYTES = 4_096


class Files(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """A sample is a file."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.rglob("*.bin"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return as_sample(np.frombuffer(self.files[index].read_bytes(), np.uint8)[-READ_BYTES:]), index % 10


class Rows(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """A sample is a row of one file."""

    def __init__(self, file: Path) -> None:
        self.bytes = np.memmap(file, np.uint8, mode="r")

    def __len__(self) -> int:
        return len(self.bytes) // SAMPLE_BYTES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        end = (index + 1) * SAMPLE_BYTES
        return as_sample(self.bytes[end - READ_BYTES : end]), index % 10


def as_sample(values: "np.ndarray[tuple[int], np.dtype[np.uint8]]") -> torch.Tensor:
    """Bytes as numbers around zero."""
    return torch.from_numpy(values.astype(np.float32) / 255 - 0.5)


def main() -> None:
    """Train, and save the parameters."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--save", type=Path, required=True, help="folder for the parameters of each machine")
    parser.add_argument("--stay", type=Path, help="after training, stay until this file is there")
    options = parser.parse_args()
    run = potluck.start(seed=1)
    folder = potluck.data_dir("samples")
    one = folder / "rows.bin"
    torch.manual_seed(0)
    # Smooth: a ReLU whose input is almost 0 would turn the last bit of a sum into a large difference.
    network = nn.Sequential(nn.Linear(READ_BYTES, 8), nn.Tanh(), nn.Linear(8, 10))
    model, optimizer = run.prepare(network, torch.optim.SGD(network.parameters(), lr=0.05))
    loader = run.loader(Rows(one) if one.exists() else Files(folder), global_batch=64)
    for _ in run.epochs(options.epochs):
        for inputs, targets in loader:
            run.backward(nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    while options.stay is not None and not options.stay.exists():
        time.sleep(0.2)
    values = torch.cat([one.detach().flatten() for one in model.parameters()])
    options.save.mkdir(exist_ok=True)
    torch.save(values, options.save / f"{read_environment().machine}.pt")


if __name__ == "__main__":
    main()
