"""Every byte between two machines is recorded while one joins, trains, is healed and stops: nothing can be read."""

import signal
import struct
from contextlib import contextmanager

import pytest

from benchmarks.support.gathering import Gathering

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(300), pytest.mark.real_world]
PAIR = """
machines:
  - {name: rosa, cores: 0.9, memory: 3G, link: 1gbit, resolves: false}
  - {name: lily, cores: 0.9, memory: 3G, link: 1gbit, resolves: false}
"""
PARAMETER, GRADIENT = 1.2345678901234567, 7.654321098765432
SCRIPT = f"""
import sys, time, torch, potluck
from torch import nn
from torch.utils.data import TensorDataset

class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = nn.Parameter(torch.full((20_000,), {PARAMETER}, dtype=torch.float64))

    def forward(self, inputs):
        return {GRADIENT} * self.known.sum() + 0 * inputs.sum()

model = Constant()
with potluck.start(device="cpu", load_balance_policy="static", checkpoint_every=10) as run:
    model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.0))
    loader = run.loader(TensorDataset(torch.zeros(640, 1)), global_batch=64)
    for _ in run.epochs(10_000, max_steps=int(sys.argv[1])):
        for (inputs,) in loader:
            run.backward(model(inputs))
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.05)
"""
PATTERNS = {
    "parameters": struct.pack("<d", PARAMETER) * 2,
    "a worker's gradients": struct.pack("<d", GRADIENT / 2) * 2,
    "all workers' gradients": struct.pack("<d", GRADIENT) * 2,
}
WORDS = ("step_committed", "run_started", "secret-experiment", "torchft", "potluck.start", "lily", "machine")


@contextmanager
def recorded(gathering, name, into):
    """What both machines send and receive, but for the host's announcement on the local network."""
    dumps = []
    for machine in ("rosa", "lily"):
        file = gathering.folder / f"{name}-{machine}.pcap"
        tcpdump = gathering.lab[machine].start(
            ["tcpdump", "-Z", "root", "-i", "eth0", "-U", "-s", "0", "-w", str(file), "not", "udp", "port", "5353"]
        )
        tcpdump.expect("listening on", 20)
        dumps.append((tcpdump, file))
    yield
    for tcpdump, file in dumps:
        tcpdump.send_signal(signal.SIGINT)
        tcpdump.wait(20)
        into.append(file.read_bytes())


def found_in(recordings):
    wanted = {**PATTERNS, **{word: word.encode() for word in WORDS}}
    return {name for name, pattern in wanted.items() for content in recordings if pattern in content}


def test_a_recording_of_a_whole_run_shows_nothing(tmp_path):
    script = tmp_path / "script" / "train.py"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    private, direct = [], []
    with Gathering(tmp_path, PAIR) as gathering:
        with recorded(gathering, "private", private):
            gathering.host().expect("rosa is here", 60)
            gathering.join("lily")
            train = gathering.start("rosa", "run", "--experiment-name", "secret-experiment", script, "100000")
            gathering.wait_for_step("secret-experiment", 20, "lily")
            crew = (
                gathering.lab["lily"]
                .run(["pgrep", "--newest", "--full", "potluck.meeting.workers.fork_server"])
                .output.split()
            )
            gathering.lab["lily"].run(["kill", "-9", crew[-1]])
            gathering.wait_for_step("secret-experiment", gathering.last_step("secret-experiment") + 60, "lily")
            assert "crashed" in train.output
            assert gathering.run("rosa", "stop")[0] == 0
            train.wait(60)
        assert sum(map(len, private)) > 20_000_000  # gradients were there
        assert found_in(private) == set()

        # What such a recording shows where gradients do go in the open: the search finds what is to be found.
        with recorded(gathering, "direct", direct):
            opened = gathering.start("rosa", "run", "--direct", "--experiment-name", "open", script, "40")
            assert opened.wait(90) == 0, opened.output
        assert found_in(direct) == {"a worker's gradients", "all workers' gradients"}
