"""Two sharing processes on loopback: a worker reads files that have not arrived by waiting for them."""

import hashlib
import json
import socket
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from potluck.core.errors import SharingError
from potluck.gates.messages import Expose, Exposed
from potluck.sharing.catalogue import make_catalogue, read_catalogue
from potluck.sharing.folders import WorkerFolder, as_variable
from potluck.sharing.granted import grant, granted_folder
from potluck.sharing.messages import FolderSettings, SharingPeer, SharingSettings
from potluck.sharing.place import DataPlace
from potluck.sharing.process import SharingProcess

READER = """
import hashlib, io, json, os, sys
from pathlib import Path
import numpy as np, torch
import potluck
from potluck.sharing.folders import watch_folders
watch_folders()
folder = potluck.data_dir("things")
names = sorted(path.name for path in folder.iterdir())
told = {"names": names, "size": (folder / "big.bin").stat().st_size, "is_file": os.path.isfile(folder / "small-3.bin")}
big = np.memmap(folder / "big.bin", np.uint8, mode="r")
told["kind"] = type(big).__name__
told["middle"] = hashlib.sha256(bytes(big[7_000_001:9_000_003])).hexdigest()
told["rows"] = [int(big[index]) for index in (0, -1, 12_345_678)]
told["reversed"] = hashlib.sha256(bytes(big[2_000_100:2_000_000:-1])).hexdigest()
try:
    torch.from_numpy(big)
except TypeError as error:
    told["from_numpy"] = "refused"
with open(folder / "big.bin", "rb") as file:
    file.seek(15_000_000)
    told["seek"] = hashlib.sha256(file.read(100_000)).hexdigest()
told["small"] = [hashlib.sha256((folder / f"small-{n}.bin").read_bytes()).hexdigest() for n in range(5)]
class Files(torch.utils.data.Dataset):
    def __len__(self): return 20
    def __getitem__(self, n): return hashlib.sha256(open(folder / f"small-{n}.bin", "rb").read()).hexdigest()
told["loader"] = [one for batch in torch.utils.data.DataLoader(Files(), batch_size=4, num_workers=2) for one in batch]
told["lines"] = len(open(folder / "text.txt").read().splitlines())
told["all"] = hashlib.sha256(np.asarray(big)).hexdigest()
fd = os.open(folder / "big.bin", os.O_RDONLY); told["os"] = hashlib.sha256(os.read(fd, 1000)).hexdigest()
for mode in ("w", "r+b"):
    try:
        open(folder / "small-1.bin", mode)
    except OSError as error:
        told["write"] = error.strerror
print(json.dumps(told))
"""


@pytest.fixture
def gate(tmp_path):
    """In the place of a gate, which would expose ports to other machines: here all have one loopback interface."""
    path = str(tmp_path / "gate")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def serve():
        while True:
            connection, _ = server.accept()
            if is_over:
                connection.close()
                return
            msgspec.json.decode(connection.makefile("rb").readline(), type=Expose)
            connection.sendall(msgspec.json.encode(Exposed()) + b"\n")
            open_connections.append(connection)

    open_connections, is_over = [], []
    thread = threading.Thread(target=serve)
    thread.start()
    yield path
    is_over.append(True)
    with socket.socket(socket.AF_UNIX) as last:
        last.connect(path)
        thread.join()
    for one in (server, *open_connections):
        one.close()


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "from" / "things"
    folder.mkdir(parents=True)
    noise = hashlib.shake_256(b"seed").digest(20_000_000)
    (folder / "big.bin").write_bytes(noise)
    for number in range(20):
        (folder / f"small-{number}.bin").write_bytes(noise[number : number + 100_000])
    (folder / "text.txt").write_text("a line\n" * 1000)
    return folder


def wait_until(condition, timeout_s=30):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def sha(content):
    return hashlib.sha256(content).hexdigest()


def test_a_worker_reads_what_has_not_arrived(tmp_path, gate, source):
    content = make_catalogue(source, tmp_path / "kept")
    place = DataPlace(tmp_path / "to", "things")
    place.keep_catalogue(hashlib.sha256(content).hexdigest(), content)
    common = {"gate": gate, "gate_run": "run"}
    listed = str(place.catalogue_file)
    seeding = SharingSettings(
        address="127.0.0.2", folders=(FolderSettings(name="things", catalogue=listed, source=str(source)),), **common
    )
    getting = SharingSettings(
        address="127.0.0.3",
        folders=(FolderSettings(name="things", catalogue=listed, place=str(place.folder)),),
        **common,
    )
    sender, receiver = SharingProcess(seeding), SharingProcess(getting)
    try:
        wait_until(lambda: sender.state.is_ready and receiver.state.is_ready)
        folder = WorkerFolder(
            name="things", path=str(place.view), arriving=str(place.arriving / "things"), socket=str(receiver.socket)
        )
        script = tmp_path / "read.py"
        script.write_text(READER)
        reader = subprocess.Popen(
            [sys.executable, "-W", "ignore", script], env=as_variable([folder]), stdout=subprocess.PIPE, text=True
        )
        time.sleep(4)
        assert reader.poll() is None  # it waits: nothing has come
        receiver.update(msgspec.structs.replace(getting, peers=(SharingPeer("127.0.0.2", sender.state.port),)))
        output, _ = reader.communicate(timeout=90)
        told = json.loads(output.splitlines()[-1])
        wait_until(lambda: receiver.state.have_bytes == receiver.state.total_bytes)
    finally:
        sender.close()
        receiver.close()
    big = (source / "big.bin").read_bytes()
    small = [(source / f"small-{number}.bin").read_bytes() for number in range(20)]
    assert told["names"] == sorted(path.name for path in source.iterdir())
    assert (told["size"], told["is_file"], told["kind"]) == (len(big), True, "ArrivingArray")
    assert told["middle"] == sha(big[7_000_001:9_000_003])
    assert told["rows"] == [big[0], big[-1], big[12_345_678]]
    assert told["reversed"] == sha(big[2_000_100:2_000_000:-1])
    assert told["from_numpy"] == "refused"
    assert told["seek"] == sha(big[15_000_000:15_100_000])
    assert told["small"] == [sha(one) for one in small[:5]]
    assert told["loader"] == [sha(one) for one in small]
    assert told["lines"] == 1000
    assert told["all"] == sha(big)
    assert told["os"] == sha(big[:1000])
    assert "share" in told["write"]
    assert {path.name: path.read_bytes() for path in place.view.iterdir()} == {
        path.name: path.read_bytes() for path in source.iterdir()
    }
    assert place.open(read_catalogue(content))


def test_only_a_folder_that_somebody_here_has_shared_is_sent(tmp_path, source):
    with pytest.raises(SharingError, match="nobody here has shared"):
        granted_folder(tmp_path / "data", "0" * 64)
    grant(tmp_path / "data", "0" * 64, source)
    assert granted_folder(tmp_path / "data", "0" * 64) == source.resolve()
