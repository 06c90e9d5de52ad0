"""A host inside Windows 10's WSL2: behind NAT, with one port that Windows forwards; a laptop in WSL2 joins it."""

import sys

import pytest

from benchmarks.support.gathering import SMALL, Gathering
from tests.lab.whole_steps import assert_every_step_is_whole

pytestmark = [pytest.mark.needs_lab, pytest.mark.real_world, pytest.mark.timeout(300)]
# rosa is a WSL2 guest on the computer `windows`; fern is one behind another computer's NAT, and nobody can dial it.
WINDOWS_10 = """machines:
  - {name: windows, cores: 0.3, memory: 1G, link: 1gbit, resolves: false}
  - {name: rosa, cores: 0.6, memory: 3G, link: 1gbit, resolves: false, behind: windows}
  - {name: lily, cores: 0.5, memory: 3G, link: 1gbit, resolves: false}
  - {name: fern, cores: 0.5, memory: 3G, link: 1gbit, resolves: false, behind: router}
"""
# What `netsh interface portproxy add v4tov4 listenport=29500 connectaddress=...` does: it accepts, dials, and copies.
PORTPROXY = """
import asyncio, sys
async def copy(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
async def carry(reader, writer):
    try:
        inner = await asyncio.open_connection(sys.argv[1], 29500)
    except OSError:
        return writer.close()
    await asyncio.gather(copy(reader, inner[1]), copy(inner[0], writer))
async def main():
    server = await asyncio.start_server(carry, "0.0.0.0", 29500)
    print("forwards", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def test_one_forwarded_port_is_enough_to_host_behind_nat(tmp_path):
    with Gathering(tmp_path, WINDOWS_10) as gathering:
        windows, guest = gathering.lab["windows"], gathering.lab["rosa"]
        proxy = windows.start([sys.executable, "-c", PORTPROXY, str(guest.address)])
        proxy.expect("forwards", 60)
        host = gathering.host("--advertise", str(windows.address))
        assert f"p1-{windows.address}-29500-" in gathering.line
        host.expect("rosa is here", 60)
        gathering.join_all("lily", "fern")
        trained = gathering.start("lily", "train", *SMALL, "--epochs", "2", "--experiment-name", "first")
        assert trained.wait(150) == 0, trained.output
        assert_every_step_is_whole(gathering.steps("first"), 64)
        for name in ("rosa", "lily", "fern"):
            assert any(record.event.own_samples for record in gathering.steps("first", name)), name
        gathering.wait_until(lambda: len(gathering.ways()) == 3, gathering.ways(), 30)
        assert gathering.ways()["lily-rosa"] == "direct"
        assert gathering.ways()["fern-rosa"] == "direct"
