"""A Lightning module on all machines.

on this machine:                 python examples/lightning_script.py
on all machines that joined:     potluck run examples/lightning_script.py
Without Potluck it would be the same script without the line that is marked, and without its import.
"""

import argparse
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from potluck.integrations.lightning import PotluckStrategy


class Classifier(LightningModule):
    """Tells on which side of a curved surface a point lies."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 2))

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        """The mean loss of this machine's samples."""
        points, sides = batch
        return nn.functional.cross_entropy(self.layers(points), sides)

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        """Every machine evaluates all samples."""
        points, sides = batch
        self.log("val_accuracy", self.layers(points).argmax(1).eq(sides).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> Any:
        """Adam, with a rate that falls by a tenth every epoch."""
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def make_data(num_samples: int, seed: int) -> TensorDataset:
    """Random points in 20 dimensions."""
    points = torch.randn(num_samples, 20, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(points, (points[:, 0] + points[:, 1].square() > 1).long())


def main() -> None:
    """Train for some epochs, and evaluate after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(0)
    train = DataLoader(make_data(4096, seed=1), batch_size=128, shuffle=True)
    held_out = DataLoader(make_data(1024, seed=2), batch_size=256)
    strategy = PotluckStrategy()  # on all machines
    trainer = Trainer(strategy=strategy, max_epochs=options.epochs, logger=False, enable_progress_bar=False)
    trainer.fit(Classifier(), train, held_out)
    strategy.run.print(f"loss {strategy.run.loss:.4f}, accuracy {trainer.callback_metrics['val_accuracy']:.4f}")


if __name__ == "__main__":
    main()
