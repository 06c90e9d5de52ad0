"""A GAN: two models, two optimizers, each with a backward pass of its own in every batch.

on this machine:                 python examples/gan.py
on all machines that joined:     potluck run examples/gan.py
The generator learns to draw points on a circle. Both optimizers' changes count together, once the machines have
agreed on the step; if one is lost before that, both are undone and the batch is tried again.
"""

import argparse
import math

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import potluck

NOISE = 8


def make_circle(num_points: int) -> TensorDataset:
    """Points on the unit circle."""
    angle = 2 * math.pi * torch.rand(num_points, generator=torch.Generator().manual_seed(1))
    return TensorDataset(torch.stack([angle.cos(), angle.sin()], 1))


def make_layers(num_inputs: int, num_outputs: int) -> nn.Module:
    """A small network."""
    return nn.Sequential(
        nn.Linear(num_inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, num_outputs)
    )


def real_or_not(judged: Tensor, *, is_real: bool) -> Tensor:
    """The loss of a critic that should have found these points real, or not."""
    return nn.functional.binary_cross_entropy_with_logits(judged, torch.full_like(judged, float(is_real)))


def main() -> None:
    """Train, and say how far from the circle the generator draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    generator, critic = make_layers(NOISE, 2), make_layers(2, 1)
    run = potluck.start()
    generator, critic, for_generator, for_critic = run.prepare(
        generator,
        critic,
        torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9)),
        torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9)),
    )
    loader = run.loader(make_circle(8192), global_batch=256)
    for epoch in run.epochs(options.epochs):
        for (real,) in loader:
            fake = generator(torch.randn(len(real), NOISE, device=run.device))
            for_critic.zero_grad()
            judged = real_or_not(critic(real), is_real=True) + real_or_not(critic(fake.detach()), is_real=False)
            run.backward(judged)
            for_critic.step()
            for_generator.zero_grad()
            run.backward(real_or_not(critic(fake), is_real=True))
            for_generator.step()
        with torch.no_grad():
            radius = generator(torch.randn(1024, NOISE, device=run.device)).norm(dim=1)
        run.print(f"epoch {epoch + 1}: points lie {(radius - 1).abs().mean():.3f} from the circle")


if __name__ == "__main__":
    main()
