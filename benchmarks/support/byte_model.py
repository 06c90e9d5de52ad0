"""A byte-level language model whose gradient bytes are dialled apart from its compute, and text that is everywhere.

    potluck run benchmarks/support/byte_model.py --rows 25000 --steps 600
    python benchmarks/support/byte_model.py --plain 10 --rows 25000     a plain loop for 10 s; prints its samples/s

One transformer block is applied four times, so that a step computes much for few parameters. Before each pass, every
position looks up a row of that pass's table, for the run of three to six bytes that ends there (its hash names the
row). Tables' gradients are dense: a step sends all `--rows` of the four tables and computes hardly more for them. They
are ready one after the other during the backward pass, as those of a model's layers. The text is Python's own library:
the source files of its first level, every tenth file held out.
"""

import argparse
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import TensorDataset

import potluck

WIDTH = 64
HEADS = 4
CONTEXT = 64
BYTES = 256
RUN_LENGTHS = (3, 4, 5, 6)
BATCH = 256
LEARNING_RATE = 4e-3
HELD_OUT_WINDOWS = 1024
HELD_OUT, SOLO, READY = "held-out loss ", "solo samples/s ", "ready"
_MULTIPLIER, _MODULUS = 1_000_003, 2_147_483_647


class Block(nn.Module):
    """Attention to earlier bytes, then two layers on each position."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_layers = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape: samples, positions, width."""
        size, length, _ = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).view(size, length, 3, HEADS, WIDTH // HEADS)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(size, length, WIDTH))
        return x.add(self.narrow(gelu(self.widen(self.before_layers(x)))))


class ByteModel(nn.Module):
    """Logits of the next byte at every position."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.block = Block()  # first, as its gradients are ready last, after all passes: DDP goes by this order
        self.bytes = nn.Embedding(BYTES, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.tables = nn.ModuleList(nn.Embedding(rows_of_a_table(rows), WIDTH) for _ in RUN_LENGTHS)
        self.last = nn.LayerNorm(WIDTH)
        for embedding in (self.bytes, self.places, *self.tables):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """From bytes: samples, positions."""
        x = self.bytes(text) + self.places.weight[: text.shape[1]]
        for table, length in zip(self.tables, RUN_LENGTHS, strict=True):
            assert isinstance(table, nn.Embedding)
            x = self.block(x + table(rows_of(text, length, table.num_embeddings)))
        return torch.matmul(self.last(x), self.bytes.weight.T)


def rows_of(text: Tensor, length: int, rows: int) -> Tensor:
    """The table's row of each position: a hash of the run of `length` bytes that ends there."""
    padded = nn.functional.pad(text, (length - 1, 0))
    mixed = torch.full_like(text, length)
    for place in range(length):
        mixed = (mixed * _MULTIPLIER + padded[:, place : place + text.shape[1]]) % _MODULUS
    return mixed % rows


def rows_of_a_table(rows: int) -> int:
    """Of each table, if all tables together have about so many."""
    return max(1, round(rows / len(RUN_LENGTHS)))


def num_parameters(rows: int) -> int:
    """Of the model with tables of so many rows together."""
    block = 12 * WIDTH**2 + 13 * WIDTH
    return block + 2 * WIDTH + (BYTES + CONTEXT + len(RUN_LENGTHS) * rows_of_a_table(rows)) * WIDTH


@dataclass(frozen=True)
class Windows:
    """Pieces of text to learn from, and pieces of other files to measure with: bytes, and the bytes after them."""

    training: TensorDataset
    held_out: TensorDataset


def windows(num_samples: int, seed: int = 0) -> Windows:
    """`num_samples` windows at random places of the training text, the same on every machine for a seed."""
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for number, path in enumerate(sorted(Path(os.__file__).parent.glob("*.py"))):
        parts[number % 10 == 0].append(path.read_bytes())
    return Windows(_cut(b"".join(parts[0]), num_samples, seed), _cut(b"".join(parts[1]), HELD_OUT_WINDOWS, 0))


def _cut(text: bytes, num_samples: int, seed: int) -> TensorDataset:
    values = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(values) - CONTEXT, (num_samples, 1), generator=generator)
    cut = values[starts + torch.arange(CONTEXT + 1)].long()
    return TensorDataset(cut[:, :-1], cut[:, 1:])


def make(rows: int, seed: int) -> tuple[ByteModel, torch.optim.AdamW]:
    """The model and its optimizer, with the same first weights on every machine."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = ByteModel(rows)
    # Without `fused` the optimizer takes ten times as long as the table's other work on a processor.
    return model, torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), fused=True)


def rate_at(part: float) -> float:
    """The learning rate against its largest, after this part of the run: a short rise, then a cosine to a tenth."""
    return min(1.0, (part + 1e-3) / 0.05) * (0.1 + 0.45 * (1 + math.cos(math.pi * min(part, 1.0))))


def losses(model: nn.Module, text: Tensor, wanted: Tensor) -> Tensor:
    """One value a byte: nats."""
    return cross_entropy(model(text).flatten(0, 1), wanted.flatten(), reduction="none")


def held_out_loss(model: nn.Module) -> float:
    """Of a model outside of a run: the mean over the held-out windows."""
    texts, targets = windows(1).held_out.tensors
    parts = (slice(start, start + BATCH) for start in range(0, len(texts), BATCH))
    with torch.no_grad():
        return float(torch.cat([losses(model, texts[part], targets[part]) for part in parts]).mean())


def train(options: argparse.Namespace) -> None:
    """One worker's part of a run; ends with the held-out loss."""
    data = windows(options.steps * options.batch, options.seed)
    model, inner = make(options.rows, options.seed)
    with potluck.start(device="cpu", seed=options.seed) as run:
        schedule = LambdaLR(inner, lambda step: rate_at(step / options.steps))
        prepared, optimizer, scheduler = run.prepare(model, inner, schedule)
        loader = run.loader(data.training, global_batch=options.batch)
        for _ in run.epochs(1):
            for text, wanted in loader:
                run.backward(losses(prepared, text, wanted).mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        if not options.no_evaluation:
            scores = run.evaluate(data.held_out, lambda text, wanted: {"loss": losses(prepared, text, wanted)})
            run.print(f"{HELD_OUT}{scores['loss']:.5f}")


def train_plainly(options: argparse.Namespace) -> float:
    """Samples/s of the loop that a person writes without Potluck, after its first step."""
    texts, targets = windows(8 * options.batch).training.tensors
    model, optimizer = make(options.rows, 0)

    def step() -> None:
        chosen = torch.randperm(len(texts))[: options.batch]
        losses(model, texts[chosen], targets[chosen]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    step()
    print(READY, flush=True)
    while options.go is not None and not options.go.exists():
        time.sleep(0.05)
    num_steps, began_s = 0, time.perf_counter()
    while num_steps < 2 or time.perf_counter() - began_s < options.plain:
        step()
        num_steps += 1
    return float(options.batch * num_steps / (time.perf_counter() - began_s))


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000, help="of the tables together: 64 parameters each")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=BATCH, help="global batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-evaluation", action="store_true", help="end without the held-out loss")
    parser.add_argument("--plain", type=float, metavar="SECONDS", help="a plain loop; prints its samples/s")
    parser.add_argument("--go", type=Path, help="with --plain: wait for this file after a first step")
    options = parser.parse_args()
    if options.plain is None:
        train(options)
    else:
        print(f"{SOLO}{train_plainly(options):.3f}", flush=True)


if __name__ == "__main__":
    main()
