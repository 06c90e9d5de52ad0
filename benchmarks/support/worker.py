"""A worker that the fault and soak benchmarks start on lab machines: an MLP in float64, the loop of the README.

python -m benchmarks.support.worker --worker RESULT.pt --steps 600
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import TensorDataset

import potluck

NUM_SAMPLES = 600
NUM_FEATURES = 256


def main() -> None:
    """Train, print every committed step, and save the parameters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", dest="result", required=True, help="where the parameters go")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds a step, so that a run lasts")
    parser.add_argument("--exchange", default="exact", help="how gradients travel")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data, model, inner = make_problem(NUM_SAMPLES, NUM_FEATURES, hidden=256)
    # A model so small is trained fastest by one machine alone; here all must stay.
    with potluck.start("run", device="cpu", keep=["rosa", "lily", "fern"], exchange=options.exchange) as run:
        prepared, optimizer = run.prepare(model, inner)
        loader = run.loader(data, global_batch=options.batch)
        for _ in run.epochs(1 + options.steps * options.batch // NUM_SAMPLES, max_steps=options.steps):
            for batch, wanted in loader:
                run.backward(nn.functional.cross_entropy(prepared(batch), wanted))
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(options.pause)
                print(f"step {run.step}", flush=True)
        torch.save([parameter.detach() for parameter in model.parameters()], options.result)


def make_problem(num_samples: int, num_features: int, hidden: int) -> tuple[TensorDataset, nn.Module, torch.optim.SGD]:
    """A dataset, an MLP in float64 that can learn it, and its optimizer; the same in every process."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(num_samples, num_features, generator=generator, dtype=torch.float64)
    data = TensorDataset(inputs, inputs[:, :10].argmax(1))
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(num_features, hidden), nn.ReLU(), nn.Linear(hidden, 10)).double()
    return data, model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


if __name__ == "__main__":
    main()
