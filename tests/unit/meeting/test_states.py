"""A checkpoint file for a new run arrives at the host whole, once, and under a name that every later one outranks."""

import hashlib
import json
from urllib.parse import parse_qsl, urlsplit

import pytest
import torch

from potluck.core.checkpoint_names import checkpoint_files
from potluck.core.errors import CheckpointError, MeetingError, ShippingError
from potluck.core.run_folder import RunFolder
from potluck.engine.checkpoints.checkpoint_file import write_checkpoint
from potluck.meeting.client.state_upload import send_state
from potluck.meeting.transfer.arrivals import CheckpointPart
from potluck.meeting.transfer.states import MOST_BYTES, ArrivedStates


class Line:
    """Carries parts to ArrivedStates as the host's service does; `spoil` may change what arrives."""

    def __init__(self, states):
        self.states = states
        self.num_parts = 0
        self.spoil = lambda body: body

    def send(self, method, path, body):
        assert (method, urlsplit(path).path) == ("PUT", "/states")
        self.num_parts += 1
        part = CheckpointPart(**dict(parse_qsl(urlsplit(path).query)))
        return json.dumps({"size": self.states.receive(part, self.spoil(body))}).encode()


@pytest.fixture
def states(tmp_path):
    return ArrivedStates(tmp_path / "states")


@pytest.fixture
def file(tmp_path):
    write_checkpoint(tmp_path / "mine.pth", {"format": 1, "step": 3, "model": {"w": torch.ones(1_500_000)}})
    return tmp_path / "mine.pth"


def test_it_arrives_in_parts_and_becomes_the_runs_oldest_checkpoint(states, file, tmp_path):
    line, folder = Line(states), RunFolder(tmp_path / "run")
    sha256 = send_state(line, file)
    assert line.num_parts == 2
    assert sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    states.check(sha256)
    states.place(sha256, folder)
    (placed,) = checkpoint_files(folder.checkpoints_dir)
    assert placed.read_bytes() == file.read_bytes()
    newer = placed.with_name("model_epoch_1_step_4.pth")
    newer.touch()
    assert checkpoint_files(folder.checkpoints_dir)[0] == newer
    with pytest.raises(MeetingError, match="does not have the file"):  # taken: nothing is kept twice
        states.check(sha256)


def test_an_interrupted_upload_goes_on_where_it_ended(states, file):
    def cut(body):
        raise ConnectionResetError

    line = Line(states)
    line.spoil = lambda body: body if line.num_parts < 2 else cut(body)
    with pytest.raises(ConnectionResetError):
        send_state(line, file)
    line.spoil, line.num_parts = lambda body: body, 0
    states.check(send_state(line, file))
    assert line.num_parts == 2  # the first is answered with what is there already


def test_a_file_that_never_arrives_whole_is_given_up(states, file):
    line = Line(states)
    line.spoil = lambda body: bytes(len(body))
    with pytest.raises(MeetingError, match="has not received"):
        send_state(line, file)


def test_what_is_no_checkpoint_or_too_large_is_refused(states, tmp_path):
    other = tmp_path / "other.pth"
    other.write_bytes(b"not a checkpoint" * 100)
    with pytest.raises(CheckpointError, match="not written by Potluck"):
        states.check(send_state(Line(states), other))
    with pytest.raises(ShippingError, match="64 GiB are the most"):
        states.receive(CheckpointPart(offset=0, total=MOST_BYTES + 1, sha256="0" * 64), b"")


def test_only_the_last_few_wait_for_their_run(states, tmp_path):
    for number in range(4):
        path = tmp_path / f"{number}.pth"
        path.write_bytes(bytes([number]) * 1000)
        send_state(Line(states), path)
    assert len(list((tmp_path / "states").iterdir())) == 2
