"""Real faults between real machines: training fails, the doctor names the machine, its fix typed as printed works."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import Process
from tests.lab.clinic import (
    ADDRESSES,
    ELM,
    ETH0,
    HERE,
    HOST_PORT,
    MEETING_PORT,
    OAK,
    POTLUCK,
    ROOT,
    Clinic,
    make_lab,
)
from tests.lab.old_environment import OLD, make_old_environment

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(120)]
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


@pytest.fixture(scope="module")
def open_clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    folder = tmp_path_factory.mktemp("clinic")
    with make_lab(folder) as lab:
        yield Clinic(lab, folder)


@pytest.fixture
def clinic(open_clinic: Clinic) -> Iterator[Clinic]:
    yield open_clinic
    open_clinic.heal()


def only(findings: list[dict[str, Any]], machine: str) -> list[dict[str, Any]]:
    """The fixes of the only finding, which must be about this machine."""
    assert [one["machine"] for one in findings] == [machine], findings
    return findings[0]["fixes"][:1]


def test_own_name_on_loopback(clinic: Clinic) -> None:
    plain = {"GLOO_SOCKET_IFNAME": ""}
    with clinic.failing(oak=plain, elm=plain):
        fixes = []
        for name in (OAK, ELM):
            launch = {"MASTER_ADDR": ADDRESSES[OAK], **plain}
            fixes += only(clinic.diagnose("hostname-loopback", on=name, variables=launch), name)
    ended = clinic.train(oak=plain, elm=plain, fixes=fixes)
    assert ended.worked, ended.output


def test_a_name_that_one_machine_does_not_know(clinic: Clinic) -> None:
    by_name = {**ETH0, "MASTER_ADDR": "oak"}
    with clinic.failing(elm=by_name):
        fixes = only(clinic.diagnose("name-unresolvable", on=ELM, reach=[OAK], variables=by_name), ELM)
    ended = clinic.train(elm=by_name, fixes=fixes)
    assert ended.worked, ended.output


@pytest.mark.parametrize("value", ["^lo", "enp9s0"])
def test_an_interface_name_that_gloo_does_not_know(clinic: Clinic, value: str) -> None:
    wrong = {"GLOO_SOCKET_IFNAME": value}
    with clinic.failing(elm=wrong):
        fixes = only(clinic.diagnose("ifname-invalid", on=ELM, variables=wrong), ELM)
    ended = clinic.train(elm=wrong, fixes=fixes)
    assert ended.worked, ended.output


def test_a_bridge_of_containers_instead_of_the_cable(clinic: Clinic) -> None:
    wrong = {"GLOO_SOCKET_IFNAME": "docker0"}
    with clinic.failing(oak=wrong, elm=wrong):
        fixes = []
        for name in (OAK, ELM):
            fixes += only(clinic.diagnose("virtual-interface", on=name, variables=wrong), name)
    ended = clinic.train(oak=wrong, elm=wrong, fixes=fixes)
    assert ended.worked, ended.output


@pytest.mark.parametrize("action", ["drop", "reject"])
def test_a_host_whose_firewall_keeps_the_others_out(clinic: Clinic, action: str) -> None:
    """The one port of the host is all that has to be open."""
    with clinic.hosting() as line:
        clinic.guard(OAK, action)
        refused = clinic.join(line)
        (finding,) = clinic.diagnose("peer-silent", on=ELM, reach=[f"{ADDRESSES[OAK]}:{HOST_PORT}"])
        assert finding["machine"] == ADDRESSES[OAK]
        assert "--fix-script linux" in finding["fixes"][0]["note"] or action == "reject"
        assert refused.wait(60) == 1
        typed = refused.output.split("and there: ")[1].strip().replace("potluck", POTLUCK, 1)
        assert clinic.lab[OAK].run(["bash", "-c", typed.replace("sudo ", "")], cwd=ROOT).returncode == 0
        joined = clinic.join(line)
        joined.expect("waiting for work", timeout_s=60)
        settings = ["--model-size", "tiny", "--num-samples", "64", "--max-steps", "2"]
        trained = clinic.start(ELM, "train", *settings, variables=clinic.home(ELM))
        assert trained.wait(60) == 0, trained.output
        joined.kill()
        joined.wait(10)


def test_the_meeting_port_is_taken(clinic: Clinic) -> None:
    server = clinic.lab[OAK].start(["python3", "-m", "http.server", "29500"], cwd=clinic.folder)
    server.expect("Serving", timeout_s=20)
    with clinic.failing():
        findings = clinic.diagnose("port-in-use", on=OAK, variables={"RANK": "0"})
        assert "python3" in findings[0]["what"]
    everywhere = [{**fix, "machine": name} for fix in only(findings, OAK) for name in (OAK, ELM)]
    ended = clinic.train(fixes=everywhere)
    server.kill()
    server.wait(10)
    assert ended.worked, ended.output


def test_nobody_is_at_the_address_that_all_dial(clinic: Clinic) -> None:
    wrong = {**ETH0, "MASTER_ADDR": "10.77.0.9"}
    with clinic.failing(oak=wrong, elm=wrong):
        fixes = only(clinic.diagnose("nobody-hosts", on=OAK, variables={**wrong, "RANK": "0"}), OAK)
    ended = clinic.train(oak=wrong, elm=wrong, fixes=[{**fix, "machine": name} for fix in fixes for name in (OAK, ELM)])
    assert ended.worked, ended.output


def test_large_packets_are_lost(clinic: Clinic) -> None:
    clinic.lab[ELM].limit_packets(1280)
    with clinic.failing():
        findings = clinic.diagnose("mtu", on=ELM, reach=[OAK])
        assert {one["machine"] for one in findings} <= {OAK, ELM}
    # Both ends agree on what fits both, so one of the two fixes is enough.
    ended = clinic.train(fixes=findings[0]["fixes"])
    assert ended.worked, ended.output
    assert not clinic.diagnose("mtu", on=ELM, reach=[OAK])


def test_little_shared_memory(clinic: Clinic) -> None:
    with_loader = [str(HERE / "ddp_worker.py"), "1"]
    with clinic.failing(command=with_loader):
        fixes = only(clinic.diagnose("shm-small", on=ELM), ELM)
    ended = clinic.train(command=with_loader, fixes=fixes)
    assert ended.worked, ended.output


def test_a_full_disk(clinic: Clinic) -> None:
    settings = ["--num-samples", "64", "--global-batch", "32", "--max-steps", "1", "--experiment-name", "full"]
    command = [str(HERE / "potluck_worker.py"), "train", *settings]
    full = {"POTLUCK_RUNS_DIR": str(clinic.folder / "disk" / "runs"), "WORLD_SIZE": "1", "HOME": str(clinic.folder)}
    with clinic.failing(elm=full, command=command, machines=[ELM]):
        fixes = only(clinic.diagnose("disk-full", on=ELM, variables=full), ELM)
    ended = clinic.train(elm=full, command=command, machines=[ELM], fixes=fixes)
    assert ended.worked, ended.output
    assert (clinic.folder / "experiments" / "full" / "checkpoints").exists()


def test_an_address_that_docker_desktop_left(clinic: Clinic) -> None:
    wrong = {**ETH0, "MASTER_ADDR": "kubernetes.docker.internal"}
    for name in (OAK, ELM):
        line = "192.168.65.254 host.docker.internal kubernetes.docker.internal"
        clinic.lab[name].run(["bash", "-c", f"echo {line} >> /etc/hosts"])
    with clinic.failing(oak=wrong, elm=wrong):
        fixes = only(clinic.diagnose("docker-desktop-hosts", on=OAK, variables={**wrong, "RANK": "0"}), OAK)
    ended = clinic.train(oak=wrong, elm=wrong, fixes=[{**fix, "machine": name} for fix in fixes for name in (OAK, ELM)])
    assert ended.worked, ended.output


def test_an_interface_that_is_switched_off(clinic: Clinic) -> None:
    clinic.lab[ELM].run(["ip", "link", "set", "dev", "eth0", "down"])
    with clinic.failing():
        fixes = only(clinic.diagnose("no-network", on=ELM), ELM)
    ended = clinic.train(fixes=fixes)
    assert ended.worked, ended.output


def test_a_slow_link(clinic: Clinic) -> None:
    clinic.lab[ELM].limit_rate(3 * 10**6)
    with clinic.failing():
        pass  # alone on the link
    findings = clinic.diagnose("slow-link", on=OAK, reach=[ELM])
    assert {one["machine"] for one in findings} == {OAK, ELM}  # of two, either may have the bad cable
    assert "Mbit/s" in findings[0]["what"]
    assert "use a gigabit cable" in findings[0]["fixes"][0]["note"]
    clinic.lab[ELM].limit_rate(10**9)
    ended = clinic.train()
    assert ended.worked, ended.output


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed; Debian has it as libfaketime")
def test_a_clock_that_is_ahead(clinic: Clinic) -> None:
    ahead = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "+40s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    with clinic.listening(ELM, **ahead) as place:
        (finding,) = clinic.diagnose("clock-skew", on=OAK, reach=[place])
    assert finding["machine"] == ELM
    assert "40 s ahead" in finding["what"]


def test_a_machine_that_is_gone(clinic: Clinic) -> None:
    clinic.lab[ELM].cut()
    with clinic.failing():
        (finding,) = clinic.diagnose("peer-silent", on=OAK, reach=[ELM])
    assert finding["machine"] == ADDRESSES[ELM]
    assert "plugged in" in finding["fixes"][0]["note"]
    clinic.lab[ELM].mend()
    ended = clinic.train()
    assert ended.worked, ended.output


def test_a_fix_script_lets_one_peer_in_at_one_port_and_can_be_taken_back(clinic: Clinic) -> None:
    clinic.guard(OAK, "drop")
    rules = ["nft", "list", "ruleset"]
    before = clinic.lab[OAK].run(rules).output

    def script(*more: str) -> None:
        peer = ["--peer", f"elm={ADDRESSES[ELM]}"]
        text = clinic.lab[OAK].run([POTLUCK, "doctor", "--fix-script", "linux", *peer, *more], cwd=ROOT).output
        done = clinic.lab[OAK].run(["bash", "-c", text])
        assert done.returncode == 0, done.output

    hosts = clinic.lab[OAK].run(["cat", "/etc/hosts"]).output
    script()
    once = clinic.lab[OAK].run(rules).output
    assert f"ip saddr {ADDRESSES[ELM]} tcp dport {MEETING_PORT} accept" in once
    script()
    assert clinic.lab[OAK].run(rules).output == once
    script("--undo")
    script("--undo")
    assert clinic.lab[OAK].run(rules).output == before
    assert clinic.lab[OAK].run(["cat", "/etc/hosts"]).output == hosts


def test_a_machine_that_its_host_refuses_for_its_version_and_then_for_its_name(clinic: Clinic) -> None:
    old = make_old_environment(clinic.folder / "elm-python")
    elm, here = clinic.lab[ELM], f"{OAK}@{ADDRESSES[ELM]}"
    elm.run(["hostname", OAK])
    shell = {**old.variables, **clinic.home(ELM)}

    def type_on_elm(*lines: str) -> Process:
        return elm.start(["bash", "-c", "\n".join(["set -e", *lines])], cwd=clinic.folder, env=shell)

    with clinic.hosting() as line:
        join = f"python -m potluck join {line}"
        refused = type_on_elm(join)
        with clinic.listening(ELM, python=old.python, **shell) as place:
            (fix,) = only(clinic.diagnose("version-mismatch", on=OAK, reach=[place]), here)
        assert refused.wait(30) == 1
        assert f"oak has potluck {OLD}" in refused.output
        assert "the line for a machine without Potluck that potluck host prints" in fix["note"]
        command = r"(python -m pip install 'http://[^']+#sha256=[0-9a-f]{64}'), then join again"
        printed = re.search(command, refused.output)
        assert printed, refused.output
        # All that Potluck needs comes from the environment that runs the tests.
        installed = type_on_elm("export PIP_NO_DEPS=1", printed[1])
        assert installed.wait(60) == 0, installed.output

        refused = type_on_elm(join)
        (fix,) = only(clinic.diagnose("duplicate-hostname", on=OAK, reach=[ELM]), here)
        assert refused.wait(30) == 1
        assert "has joined as oak" in refused.output
        joined = type_on_elm(*fix["commands"], join)
        joined.expect("waiting for work", timeout_s=60)

        settings = ["--model-size", "tiny", "--num-samples", "64", "--max-steps", "2", "--experiment-name", "both"]
        trained = clinic.start(OAK, "train", *settings, variables=clinic.home(OAK))
        assert trained.wait(60) == 0, trained.output
        joined.kill()
        joined.wait(10)
    assert {"oak-0", "oak-2-1"} == {file.stem for file in (clinic.folder / "experiments" / "both").glob("events/*")}
