"""CIFAR archives in the real format, only smaller: read, checked, downloaded, or a fix to type."""

import dataclasses
import hashlib
import io
import json
import os
import socket
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from potluck.core.errors import DataError
from potluck.workloads.datasets import DataOptions, archive
from potluck.workloads.datasets.cifar import CIFAR10, CIFAR100, NUM_PIXELS, Cifar, read_cifar

RECORDS = 4


def options(data_dir: Path, num_samples: int | None = None) -> DataOptions:
    return DataOptions(data_dir=data_dir, num_samples=num_samples, seed=0)


def records(cifar: Cifar, member: str) -> bytes:
    """A record is its labels, then a pixel value that tells the record from all others."""
    start = RECORDS * [*cifar.train, *cifar.test].index(member)
    coarse = b"\x13" * (cifar.label_bytes - 1)
    return b"".join(
        coarse + bytes([n % cifar.num_classes]) + bytes([n]) * NUM_PIXELS for n in range(start, start + RECORDS)
    )


def members(cifar: Cifar) -> dict[str, bytes]:
    return {member: records(cifar, member) for member in (*cifar.train, *cifar.test)}


def write_archive(path: Path, contents: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in {"cifar/readme.html": b"hello", "../escape": b"!", **contents}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def expecting(cifar: Cifar, path: Path, base_url: str = "http://127.0.0.1:9/") -> Cifar:
    """The same format with fewer records, and the checksum that this file has now."""
    content = path.read_bytes()
    return dataclasses.replace(
        cifar,
        archive=dataclasses.replace(
            cifar.archive,
            base_url=base_url,
            sha256=hashlib.sha256(content).hexdigest(),
            num_bytes=len(content),
        ),
        train=dict.fromkeys(cifar.train, RECORDS),
        test=dict.fromkeys(cifar.test, RECORDS),
    )


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address on this machine where nobody listens."""
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}/"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the address that serves it."""
    monkeypatch.setenv("no_proxy", "*")
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder)) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
        thread.join()


@pytest.mark.parametrize("cifar", [CIFAR10, CIFAR100], ids=["cifar10", "cifar100"])
def test_records_become_images_and_labels(cifar: Cifar, tmp_path: Path) -> None:
    path = tmp_path / cifar.archive.name
    write_archive(path, members(cifar))
    splits = read_cifar(expecting(cifar, path), options(tmp_path))
    num_train = RECORDS * len(cifar.train)
    assert (splits.kind, splits.num_classes) == ("image", cifar.num_classes)
    assert splits.train.labels.tolist() == [n % cifar.num_classes for n in range(num_train)]
    assert splits.train.pixels.flatten(1).float().mean(1).tolist() == list(range(num_train))
    assert splits.held_out.labels.tolist() == [n % cifar.num_classes for n in range(num_train, num_train + RECORDS)]
    image, label = splits.train[3]
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (cifar.normalisation.mean, cifar.normalisation.std))
    torch.testing.assert_close(image, ((3 / 255 - mean) / std).expand(3, 32, 32))
    assert label == 3
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [path.name, path.name + ".verified"]


def test_channels_come_first_then_rows(tmp_path: Path) -> None:
    pixels = bytes([10] * 1024 + [20] * 1024 + [30] * 1023 + [99])
    contents = dict.fromkeys(members(CIFAR10), (b"\x01" + pixels) * RECORDS)
    path = tmp_path / CIFAR10.archive.name
    write_archive(path, contents)
    read = read_cifar(expecting(CIFAR10, path), options(tmp_path)).train.pixels[0]
    assert read[:, 0, 0].tolist() == [10, 20, 30]
    assert read[2, 31, 30:].tolist() == [30, 99]


def test_the_published_archives_are_pinned() -> None:
    for cifar, sha256, num_bytes in [
        (CIFAR10, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170_052_171),
        (CIFAR100, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec", 168_513_733),
    ]:
        assert cifar.archive.sha256 == sha256
        assert cifar.archive.num_bytes == num_bytes
        assert cifar.archive.url.startswith("https://www.cs.toronto.edu/~kriz/cifar-10")
        assert (sum(cifar.train.values()), sum(cifar.test.values())) == (50_000, 10_000)


def test_fewer_samples_are_the_first_ones(tmp_path: Path) -> None:
    path = tmp_path / CIFAR10.archive.name
    write_archive(path, members(CIFAR10))
    splits = read_cifar(expecting(CIFAR10, path), options(tmp_path, num_samples=6))
    assert splits.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(DataError, match="--num-samples of at most 20"):
        read_cifar(expecting(CIFAR10, path), options(tmp_path, num_samples=21))


def test_an_extracted_folder_is_read_without_the_archive(tmp_path: Path, unreachable: str) -> None:
    path = tmp_path / CIFAR10.archive.name
    write_archive(path, members(CIFAR10))
    small = expecting(CIFAR10, path, unreachable)
    path.unlink()
    for name, content in members(CIFAR10).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert read_cifar(small, options(tmp_path)).train.labels.tolist() == [n % 10 for n in range(20)]

    shortened = tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin"
    shortened.write_bytes(members(CIFAR10)["cifar-10-batches-bin/data_batch_2.bin"][:-1])
    with pytest.raises(DataError, match=r"12291 bytes instead of 12292\n.*rm -r .*cifar-10-batches-bin"):
        read_cifar(small, options(tmp_path))

    shortened.write_bytes(b"\xff" * RECORDS * (1 + NUM_PIXELS))
    with pytest.raises(DataError, match=r"a label 255 among 10 classes\n.*rm -r .*cifar-10-batches-bin"):
        read_cifar(small, options(tmp_path))


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_archive_is_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / CIFAR10.archive.name
    write_archive(path, members(CIFAR10))
    small = expecting(CIFAR10, path)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="is damaged") as raised:
        read_cifar(small, options(tmp_path))
    assert raised.value.fix == f"fetch it again: rm -f {path} && curl -L -o {path} {small.archive.url}"


@pytest.mark.parametrize("damage", ["truncated", "no tar", "a member missing", "a member short"])
def test_an_archive_with_the_right_checksum_and_the_wrong_content_is_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / CIFAR10.archive.name
    contents = members(CIFAR10)
    if damage == "a member missing":
        del contents["cifar-10-batches-bin/test_batch.bin"]
    if damage == "a member short":
        contents["cifar-10-batches-bin/test_batch.bin"] = b"\x01"
    write_archive(path, contents)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-200])
    if damage == "no tar":
        path.write_text("404 not found")
    with pytest.raises(DataError, match="is damaged"):
        read_cifar(expecting(CIFAR10, path), options(tmp_path))


def test_the_checksum_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / CIFAR10.archive.name
    write_archive(path, members(CIFAR10))
    small = expecting(CIFAR10, path)
    checked: list[Path] = []
    fault = archive._fault
    monkeypatch.setattr(archive, "_fault", lambda a, p: checked.append(p) or fault(a, p))
    for _ in range(2):
        read_cifar(small, options(tmp_path))
    assert checked == [path]
    os.utime(path, ns=(0, 0))
    read_cifar(small, options(tmp_path))
    assert checked == [path, path]


def test_a_remembered_check_does_not_cover_another_archive(tmp_path: Path) -> None:
    path = tmp_path / CIFAR10.archive.name
    write_archive(path, members(CIFAR10))
    read_cifar(expecting(CIFAR10, path), options(tmp_path))
    assert json.loads((tmp_path / (path.name + ".verified")).read_text())["num_bytes"] == path.stat().st_size
    with pytest.raises(DataError, match="bytes instead of 170052171"):
        read_cifar(CIFAR10, options(tmp_path))


def test_without_network_the_fix_says_what_to_fetch_and_where_to_put_it(tmp_path: Path, unreachable: str) -> None:
    small = dataclasses.replace(CIFAR10, archive=dataclasses.replace(CIFAR10.archive, base_url=unreachable))
    with pytest.raises(DataError, match="cannot be downloaded") as raised:
        read_cifar(small, options(tmp_path / "data"))
    assert f"curl -LO {unreachable}cifar-10-binary.tar.gz" in raised.value.fix
    assert f"put the file at {tmp_path}/data/cifar-10-binary.tar.gz" in raised.value.fix
    assert "--dataset synthetic_image" in raised.value.fix
    assert list((tmp_path / "data").iterdir()) == []


def test_a_missing_archive_is_downloaded_and_checked(
    tmp_path: Path, server: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, address = server
    served = folder / CIFAR10.archive.name
    write_archive(served, members(CIFAR10))
    small = expecting(CIFAR10, served, address)
    data_dir = tmp_path / "data"
    assert len(read_cifar(small, options(data_dir)).train) == 20
    assert (data_dir / served.name).read_bytes() == served.read_bytes()
    said = capsys.readouterr().err
    assert f"downloading {served.name} (0 MB) to {data_dir}: 0 %" in said  # for whoever waits at the display
    assert f"downloaded {served.name}" in said
    served.unlink()
    assert len(read_cifar(small, options(data_dir)).train) == 20


@pytest.mark.parametrize("served_content", [b"log in to the hotel's network", None])
def test_a_download_of_something_else_leaves_nothing_behind(
    served_content: bytes | None, tmp_path: Path, server: tuple[Path, str]
) -> None:
    folder, address = server
    served = folder / CIFAR10.archive.name
    write_archive(served, members(CIFAR10))
    small = expecting(CIFAR10, served, address)
    served.unlink()
    if served_content is not None:
        served.write_bytes(served_content)
    with pytest.raises(DataError, match="gave something else" if served_content else "404"):
        read_cifar(small, options(tmp_path / "data"))
    assert list((tmp_path / "data").iterdir()) == []


def test_a_data_dir_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataError, match="cannot keep data in") as raised:
        read_cifar(CIFAR10, options(tmp_path / "data"))
    assert raised.value.fix == "name a folder you may write to: --data-dir FOLDER"
