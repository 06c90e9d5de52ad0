"""Machines that are refused, on a real network: each message says what to type, and typing it helps."""

import shutil
import subprocess
import time

import pytest

from benchmarks.support.gathering import Gathering
from lab.cluster import FirewallRule
from potluck.meeting.host.roster import AWAY_AFTER_S

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(120)]
PAIR = """
machines:
  - name: rosa
    cores: 0.9
    memory: 2G
    resolves: false
    interfaces: [{name: docker0, kind: bridge, address: 172.17.0.1/16}]
  - {name: lily, cores: 0.9, memory: 2G, resolves: false}
"""
LEFT_OVER = {"MASTER_ADDR": "192.0.2.9", "RANK": "0"}  # of a launch without Potluck


def test_the_way_in_each_version_and_the_clock_are_checked_at_the_door(tmp_path):
    with Gathering(tmp_path, PAIR) as gathering:
        host = gathering.host("--not-here", env=LEFT_OVER)
        started_at = time.monotonic()
        assert "doctor: rosa is worker 0, but MASTER_ADDR=192.0.2.9 is no address of it" in host.output
        assert "172.17" not in host.output  # a bridge for containers leads nowhere
        status, output = gathering.run("lily", "join")
        assert status == 1
        assert "1 host is heard, but there is no terminal to ask at" in output
        rosa, lily = gathering.lab["rosa"], gathering.lab["lily"]

        # The host's one port is closed to lily: the way in is all that is missing, and the line says how to open it.
        rosa.set_firewall([FirewallRule(action="drop", protocol="tcp", ports="1024-65535", peer="lily")])
        code, output = gathering.run("lily", "join", gathering.line, env=LEFT_OVER)
        assert code == 1
        assert "doctor: lily is worker 0, but MASTER_ADDR=192.0.2.9 is no address of it" in output
        assert "the host at 10.77.0.1:29500 does not answer" in output
        typed = output.split("and there: potluck ")[1].split("|")[0].split()
        assert typed == ["doctor", "--fix-script", "linux", "--peer", "10.77.0.2", "--port", "29500"]
        code, script = gathering.run("rosa", *typed)
        assert code == 0
        assert rosa.run(["bash", "-c", script]).returncode == 0
        # Nobody can dial lily, and nobody has to.
        lily.set_firewall([FirewallRule(action="drop", protocol="tcp", ports="1-65535")])
        joined = gathering.join("lily")
        assert "lily" in gathering.states()
        gathering.wait_until(lambda: gathering.ways() == {"lily-rosa": "direct"}, gathering.ways(), 20)
        joined.kill()
        joined.wait(10)
        rosa.set_firewall([])

        other_torch = tmp_path / "other" / "torch-2.1.0.dist-info"
        other_torch.mkdir(parents=True)
        (other_torch / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.1.0\n")
        path = f"{other_torch.parent}:{gathering.variables('lily')['PYTHONPATH']}"
        code, output = gathering.run("lily", "join", gathering.line, env={"PYTHONPATH": path})
        assert code == 1
        assert "lily has torch 2.1.0" in output
        assert "pip install 'torch==" in output

        if shutil.which("faketime"):
            code, output = gathering.run("lily", "join", gathering.line, under=["faketime", "-f", "+60s"])
            assert code == 1
            assert "lily's clock is 60 s ahead of rosa's" in output
            assert "timedatectl" in output

        # A host that does not train is here as long as it hosts.
        time.sleep(max(0.0, started_at + AWAY_AFTER_S - time.monotonic()))
        assert gathering.states()["rosa"] == "here"

        # What anybody on a machine can list shows no token and no secret.
        token = gathering.line.split("-", 3)[3]
        commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        assert token not in commands
