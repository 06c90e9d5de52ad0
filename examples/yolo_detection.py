"""Object detection with an Ultralytics YOLO model and its own loss.

on this machine:                 python examples/yolo_detection.py --data FOLDER --num-classes N --size 640
on all machines that joined:     potluck run examples/yolo_detection.py --data FOLDER --num-classes N --size 640
FOLDER has images/*.jpg and labels/*.txt: a line for each box, with class, x, y, width, height. Without it drawn discs
and squares: a try that needs no download. --weights yolo11n.pt begins with trained weights.
Ultralytics (pip install ultralytics) has the licence AGPL-3.0: mind it if you pass on what you make with it.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from ultralytics.cfg import get_cfg
from ultralytics.nn.tasks import DetectionModel, load_checkpoint

import potluck

Sample = tuple[Image.Image, list[list[float]]]  # an image; of each box: class, x, y, width, height


def read(file: Path) -> Sample:
    """An image of a folder."""
    lines = (file.parents[1] / "labels" / f"{file.stem}.txt").read_text().splitlines()
    return Image.open(file).convert("RGB"), [[float(word) for word in line.split()] for line in lines]


def draw(number: int) -> Sample:
    """A disc, of class 0, and a square, of class 1, at the same distance from each other in every image."""
    image, (x, y, side) = Image.new("RGB", (160, 160), "navy"), np.random.default_rng(number).uniform(0.2, 0.35, 3)
    for shift, shape in ((0, ImageDraw.Draw(image).ellipse), (0.4, ImageDraw.Draw(image).rectangle)):
        shape([160 * (middle + shift + half) for half in (-side / 2, side / 2) for middle in (x, y)], fill="gold")
    return image, [[0, x, y, side, side], [1, x + 0.4, y + 0.4, side, side]]


def as_batch(samples: list[Path | int], size: int) -> dict[str, Tensor]:
    """A batch as Ultralytics' loss wants it: all boxes, and for each box which image of the batch it is in."""
    seen = [read(sample) if isinstance(sample, Path) else draw(sample) for sample in samples]
    images, boxes = zip(*seen, strict=True)
    pixels = torch.from_numpy(np.stack([np.asarray(image.resize((size, size))) for image in images]))
    rows = torch.tensor([[number, *box] for number, some in enumerate(boxes) for box in some]).reshape(-1, 6).float()
    pixels = pixels.permute(0, 3, 1, 2) / 255
    return {"img": pixels, "batch_idx": rows[:, 0], "cls": rows[:, 1:2], "bboxes": rows[:, 2:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--weights", help="a .pt file of the same model")
    parser.add_argument("--num-classes", type=int, default=2)
    parser.add_argument("--size", type=int, default=64, help="pixels of an image's side")
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(0)
    inner = DetectionModel("yolo11n.yaml", nc=options.num_classes, verbose=False)
    if options.weights:
        inner.load(load_checkpoint(options.weights)[0])
    inner.args = get_cfg()  # how the loss weighs boxes, classes and distributions
    images = list(range(128)) if options.data is None else sorted((options.data / "images").iterdir())

    run = potluck.start()
    model, optimizer = run.prepare(inner, torch.optim.AdamW(inner.parameters(), lr=1e-3))
    inner.criterion, scores = inner.init_criterion(), []
    inner.criterion.assigner.register_forward_hook(lambda _, __, assigned: scores.append(assigned[2].sum()))
    loader = run.loader(images, global_batch=32, collate=lambda some: as_batch(some, options.size))
    for epoch in run.epochs(options.epochs):
        for batch in loader:
            parts, _ = model(batch)  # means over the scores of the assigned boxes, times the number of images
            run.backward(parts.sum() / len(batch["img"]), count=scores.pop().clamp(min=1))
            optimizer.step()
            optimizer.zero_grad()
        run.print(f"epoch {epoch + 1}: loss {run.loss:.3f}")


if __name__ == "__main__":
    main()
