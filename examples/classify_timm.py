"""Image classification with timm: any of its models, its own transforms and datasets.

on this machine:                 python examples/classify_timm.py --model NAME --images FOLDER
on all machines that joined:     potluck run examples/classify_timm.py --model NAME --images FOLDER
FOLDER has one folder of images for each class. Without it drawn discs, squares and rings, and without --model a tiny
ConvNeXt: a try that needs no download. --pretrained begins with the weights of the Hugging Face hub.
"""

import argparse

import timm
import torch
from PIL import Image, ImageDraw
from timm.data import create_dataset, create_transform, resolve_data_config
from torch import Tensor, nn
from torch.utils.data import Dataset

import potluck

CLASSES = {"disc": "gold", "square": "coral", "ring": "white"}


class Drawn(Dataset[tuple[Tensor, int]]):
    """Discs, squares and rings in different places and sizes."""

    def __init__(self, num_images: int, first: int = 0) -> None:
        self.transform = None
        self._first, self._num_images = first, num_images

    def __len__(self) -> int:
        return self._num_images

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        place = torch.rand(3, generator=torch.Generator().manual_seed(self._first + index))
        x, y, size = (place * torch.tensor([60, 60, 40]) + torch.tensor([10, 10, 30])).tolist()
        image, kind = Image.new("RGB", (160, 160), "navy"), index % len(CLASSES)
        draw = ImageDraw.Draw(image).rectangle if kind == 1 else ImageDraw.Draw(image).ellipse
        colour = list(CLASSES.values())[kind]
        draw((x, y, x + size, y + size), fill="navy" if kind == 2 else colour, outline=colour, width=8)
        return self.transform(image), kind


def main() -> None:
    """Train, and say after each epoch how many images of the second dataset are classified right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="test_convnext", help="a name of timm.list_models()")
    parser.add_argument("--pretrained", action="store_true")
    parser.add_argument("--images", help="a folder with train/CLASS/*.jpg and val/CLASS/*.jpg")
    parser.add_argument("--size", type=int, default=64, help="pixels of an image's side")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--global-batch", type=int, default=48)
    options = parser.parse_args()
    if options.images is None:
        training, validation, num_classes = Drawn(480), Drawn(120, first=480), len(CLASSES)
    else:
        training, validation = (create_dataset("", options.images, split=split) for split in ("train", "val"))
        num_classes = len(training.reader.class_to_idx)
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(options.model, pretrained=options.pretrained, num_classes=num_classes)
    sizes = resolve_data_config({"img_size": options.size}, model=model)
    training.transform = create_transform(**sizes, is_training=True, color_jitter=0.2, scale=(0.7, 1.0))
    validation.transform = create_transform(**sizes)

    run = potluck.start()
    model, optimizer = run.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05))
    loader = run.loader(training, global_batch=options.global_batch)
    for epoch in run.epochs(options.epochs):
        for images, labels in loader:
            run.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            optimizer.zero_grad()
        found = run.evaluate(validation, lambda images, labels: {"accuracy": model(images).argmax(1) == labels})
        run.print(f"epoch {epoch + 1}: accuracy {found['accuracy']:.3f}")


if __name__ == "__main__":
    main()
