"""A loop of your own with Lightning's Fabric, on all machines.

on this machine:                 python examples/fabric_script.py
on all machines that joined:     potluck run examples/fabric_script.py
Without Potluck it would have no strategy, and range(...) in place of fabric.strategy.epochs(...).
"""

import argparse

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from potluck.integrations.fabric import PotluckFabricStrategy


def make_data(num_samples: int, seed: int) -> TensorDataset:
    """Random points in 20 dimensions, and on which side of a curved surface each lies."""
    points = torch.randn(num_samples, 20, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(points, (points[:, 0] + points[:, 1].square() > 1).long())


def main() -> None:
    """Train for some epochs, and evaluate after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    strategy = PotluckFabricStrategy()
    fabric = Fabric(accelerator="auto", devices=1, strategy=strategy)
    fabric.seed_everything(0, verbose=False)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 2))
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=1e-2))
    loader = fabric.setup_dataloaders(DataLoader(make_data(4096, seed=1), batch_size=128, shuffle=True))
    points, sides = make_data(1024, seed=2).tensors
    for epoch in strategy.epochs(options.epochs):
        for inputs, targets in loader:
            fabric.backward(nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            accuracy = model(points.to(fabric.device)).argmax(1).eq(sides.to(fabric.device)).float().mean()
        strategy.run.print(f"epoch {epoch}: loss {strategy.run.loss:.4f}, accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
