"""Links of 10 Mbit/s that gradients, a training state and files keep full: no machine that lives is taken for lost."""

import os
from pathlib import Path

import pytest

from benchmarks.support.gathering import KEPT, Gathering
from lab.cluster_file import SHIPPED_DIR
from potluck.events.log import read_records
from potluck.events.types import GroupChanged
from tests.lab.whole_steps import assert_every_step_is_whole

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(600), pytest.mark.real_world]

# 5 MB of gradients take 4 s between two machines. The state with AdamW's moments, 16 MB, takes a newcomer 13 s.
SCRIPT = """
import os, pathlib, sys, zlib, potluck, torch
from torch import nn
from torch.utils.data import TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randint(20480, (6400, 8)), torch.randint(10, (6400,)))
model = nn.Sequential(nn.EmbeddingBag(20480, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
run = potluck.start()
model, optimizer = run.prepare(model, optimizer)
loader = run.loader(data, global_batch=64)
weights = pathlib.Path(sys.argv[1], os.environ["POTLUCK_NAME"]).open("a")
for epoch in run.epochs(1000):
    for inputs, targets in loader:
        run.backward(nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        digest = 0
        for parameter in model.parameters():
            digest = zlib.crc32(parameter.detach().numpy(), digest)
        print(run.step, digest, file=weights, flush=True)
"""


def test_full_links_lose_no_machine_that_lives(tmp_path: Path) -> None:
    digests = tmp_path / "digests"
    digests.mkdir()
    with Gathering(tmp_path, (SHIPPED_DIR / "crawl.yaml").read_text()) as gathering:
        rosa, lily, fern = gathering.lab.machines
        cores = {machine: machine.cores() for machine in (rosa, lily, fern)}
        for machine in cores:
            machine.slow(0.7)  # while programs start
        gathering.host().expect("rosa is here", 90)
        gathering.join_all("lily")
        code = gathering.place("rosa") / "code"
        code.mkdir()
        (code / "train.py").write_text(SCRIPT)
        (code / "files.bin").write_bytes(os.urandom(1_000_000))
        train = gathering.start("rosa", "run", *KEPT, "--experiment-name", "full", code / "train.py", digests)
        gathering.wait_for_step("full", 3, timeout_s=120)

        gathering.join("fern", wait=False).expect("waiting for work", 90)
        for machine, number in cores.items():
            machine.slow(number)
        gathering.wait_for_step("full", 1, "fern", timeout_s=150)
        assert gathering.states() == {"rosa": "here", "lily": "here", "fern": "here"}

        fern_is_at = gathering.last_step("full", "fern")
        lily.kill()
        gathering.wait_for_step("full", fern_is_at + 3, "fern", timeout_s=120)
        assert gathering.states() | {"lily": ""} == {"rosa": "here", "lily": "", "fern": "here"}
        assert gathering.run("rosa", "stop", timeout_s=90)[0] == 0
        assert train.wait(90) == 130, train.output
        events = [
            record.event for file in gathering.home_run("full").glob("events/*.jsonl") for record in read_records(file)
        ]
        records = gathering.steps("full")
    changes = [event for event in events if isinstance(event, GroupChanged)]
    assert {machine for change in changes for machine in change.left} == {"lily"}
    assert {machine for change in changes for machine in change.joined} == {"fern"}
    # lily's last events are lost with it.
    assert_every_step_is_whole([record for record in records if record.event.step > 1], 64, num_breaks=2)
    seen: dict[str, set[str]] = {}
    for file in digests.iterdir():
        for step, digest in (line.split() for line in file.read_text().splitlines()):
            seen.setdefault(step, set()).add(digest)
    assert all(len(values) == 1 for values in seen.values()), seen
    print(f"longest time without a step: {max((change.stall_s for change in changes), default=0):.1f} s")
