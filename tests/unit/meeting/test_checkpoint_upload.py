"""Checkpoints go home whole, the oldest first, and one that vanishes on the way stops nothing."""

import hashlib
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from potluck.core.run_folder import RunFolder
from potluck.meeting.client.checkpoint_upload import CheckpointUpload
from potluck.meeting.transfer.arrivals import CheckpointPart, receive_checkpoint


class Host:
    """Takes parts of checkpoints; `when` is called before each."""

    def __init__(self):
        self.files = {}
        self.when = lambda: None

    def send(self, method, path, body):
        assert method == "PUT"
        self.when()
        name, query = urlsplit(path).path.rsplit("/", 1)[1], parse_qs(urlsplit(path).query)
        content = self.files.get(name, b"")[: int(query["offset"][0])] + body
        self.files[name] = content
        if len(content) == int(query["total"][0]):
            assert hashlib.sha256(content).hexdigest() == query["sha256"][0]
        return json.dumps({"size": len(content)}).encode()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    return RunFolder(tmp_path / "run")


def test_each_is_sent_once_and_again_only_if_it_was_written_anew(folder):
    host, upload = Host(), CheckpointUpload(folder)
    for number in (1, 2):
        (folder.checkpoints_dir / f"model_epoch_{number}.pth").write_bytes(bytes([number]) * 1000)
    while upload.advance(host, "run"):
        pass
    assert host.files == {f"model_epoch_{number}.pth": bytes([number]) * 1000 for number in (1, 2)}
    host.when = lambda: pytest.fail("it has all of them")
    assert not upload.advance(host, "run")


def test_one_that_is_gone_when_it_has_arrived_stops_nothing(folder):
    """A run keeps its last few checkpoints only, and does not wait for the network."""
    host, upload = Host(), CheckpointUpload(folder)
    first, second = (folder.checkpoints_dir / f"model_epoch_{number}.pth" for number in (1, 2))
    first.write_bytes(b"1" * 1000)
    host.when = first.unlink
    assert upload.advance(host, "run")
    host.when = lambda: None
    second.write_bytes(b"2" * 1000)
    while upload.advance(host, "run"):
        pass
    assert set(host.files) == {first.name, second.name}


def test_one_that_arrives_damaged_is_thrown_away_and_sent_again(folder, tmp_path):
    home = RunFolder(tmp_path / "home")
    written = folder.checkpoints_dir / "model_epoch_1.pth"
    written.write_bytes(b"1" * 1000)
    upload, arrived = CheckpointUpload(folder), []

    class DamagingHost:
        def send(self, _, path, body):
            query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
            body = body if arrived else b"0" + body[1:]
            arrived.append(receive_checkpoint(home, "rosa-model_epoch_1.pth", CheckpointPart(**query), body, keep=3))
            return json.dumps({"size": arrived[-1]}).encode()

    while upload.advance(DamagingHost(), "run"):
        pass
    assert arrived == [0, 1000]
    assert [path.read_bytes() for path in home.checkpoints_dir.iterdir()] == [written.read_bytes()]
