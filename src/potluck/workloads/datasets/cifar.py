"""CIFAR-10 and CIFAR-100 from their binary archives: fixed-size records, read without pickle."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from potluck.core.errors import DataError
from potluck.core.shell_words import quote
from potluck.workloads.datasets.archive import Archive, read_members
from potluck.workloads.datasets.images import Images, Normalisation
from potluck.workloads.datasets.splits import DataOptions, Splits, num_held_out, take

SHAPE = (3, 32, 32)
NUM_PIXELS = 3 * 32 * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Cifar:
    """CIFAR-10 or CIFAR-100: a record is `label_bytes` labels, of which the last is used, then the pixels."""

    archive: Archive
    train: dict[str, int]  # member: number of records
    test: dict[str, int]
    label_bytes: int
    num_classes: int
    normalisation: Normalisation


CIFAR10 = Cifar(
    archive=Archive(
        name="cifar-10-binary.tar.gz",
        base_url="https://www.cs.toronto.edu/~kriz/",
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        num_bytes=170_052_171,
        instead="synthetic_image",
    ),
    train={f"cifar-10-batches-bin/data_batch_{n}.bin": 10_000 for n in range(1, 6)},
    test={"cifar-10-batches-bin/test_batch.bin": 10_000},
    label_bytes=1,
    num_classes=10,
    normalisation=Normalisation(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
)

CIFAR100 = Cifar(
    archive=Archive(
        name="cifar-100-binary.tar.gz",
        base_url="https://www.cs.toronto.edu/~kriz/",
        sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        num_bytes=168_513_733,
        instead="synthetic_image",
    ),
    train={"cifar-100-binary/train.bin": 50_000},
    test={"cifar-100-binary/test.bin": 10_000},
    label_bytes=2,  # coarse, fine
    num_classes=100,
    normalisation=Normalisation(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)),
)


def load_cifar10(options: DataOptions) -> Splits:
    """60,000 photographs of ten kinds of things."""
    return read_cifar(CIFAR10, options)


def load_cifar100(options: DataOptions) -> Splits:
    """60,000 photographs of a hundred kinds of things."""
    return read_cifar(CIFAR100, options)


def read_cifar(cifar: Cifar, options: DataOptions) -> Splits:
    """The first `num_samples` training images, and as many of the test images as `num_held_out` says."""
    num_samples = take(cifar.archive.name, sum(cifar.train.values()), options.num_samples)
    record_bytes = cifar.label_bytes + NUM_PIXELS
    sizes = {name: records * record_bytes for name, records in {**cifar.train, **cifar.test}.items()}
    members = read_members(cifar.archive, options.data_dir, sizes)
    return Splits(
        kind="image",
        num_classes=cifar.num_classes,
        train=_images(cifar, [members[name] for name in cifar.train], num_samples, options.data_dir),
        held_out=_images(cifar, [members[name] for name in cifar.test], num_held_out(num_samples), options.data_dir),
    )


def _images(cifar: Cifar, members: list[bytearray], count: int, data_dir: Path) -> Images:
    records = torch.cat([_records(cifar, member) for member in members])[:count]
    labels = records[:, cifar.label_bytes - 1].long()
    if int(labels.max()) >= cifar.num_classes:
        folder = data_dir.expanduser().resolve() / Path(next(iter(cifar.test))).parent
        raise DataError(
            f"{folder} is damaged: it has a label {int(labels.max())} among {cifar.num_classes} classes",
            fix=f"delete the folder and start again: rm -r {quote(folder)}",
        )
    return Images(records[:, cifar.label_bytes :].reshape(-1, *SHAPE), labels, cifar.normalisation)


def _records(cifar: Cifar, member: bytearray) -> Tensor:
    return torch.frombuffer(member, dtype=torch.uint8).view(-1, cifar.label_bytes + NUM_PIXELS)
