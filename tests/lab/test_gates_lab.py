"""Networks as homes have them: a router's address translation, a container's bridge, firewalls. Each trains."""

import json

import pytest

from benchmarks.support.gathering import LAPTOPS, SMALL, Gathering
from lab.cluster_file import SHIPPED_DIR
from tests.lab.whole_steps import assert_every_step_is_whole

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(240)]
# What stands between the machines, and how the links between them go.
WAYS = {
    "nat": {"lily-rosa": "direct", "fern-rosa": "direct", "fern-lily": "relayed"},
    "bridge": {"lily-rosa": "direct", "box-rosa": "direct", "box-lily": "direct"},
    "oneway": {"lily-rosa": "direct", "fern-rosa": "direct", "fern-lily": "direct"},
    "guarded": {"lily-rosa": "direct", "fern-rosa": "direct", "fern-lily": "relayed"},
}


@pytest.mark.parametrize(
    "cluster", ["nat", "bridge", *(pytest.param(name, marks=pytest.mark.real_world) for name in ("oneway", "guarded"))]
)
def test_machines_that_reach_the_host_train_and_say_how_their_links_go(tmp_path, cluster):
    with Gathering(tmp_path, (SHIPPED_DIR / f"{cluster}.yaml").read_text()) as gathering:
        host = gathering.host()
        host.expect("rosa is here", 60)
        names = [machine.name for machine in gathering.lab.machines]
        gathering.join_all(*names[1:])
        trained = gathering.start(names[2], "train", *SMALL, "--epochs", "2", "--experiment-name", "first")
        assert trained.wait(90) == 0, trained.output
        assert_every_step_is_whole(gathering.steps("first"), 64)
        for name in names:
            assert any(record.event.own_samples for record in gathering.steps("first", name)), name
        gathering.wait_until(lambda: gathering.ways() == WAYS[cluster], gathering.ways(), 20)
        for one in names:
            dialled_by = {link["dialled_by"] for link in gathering.status()["links"] if one in link["machines"]}
            assert dialled_by <= {*names, None}

        code, table = gathering.run(names[1], "status")
        assert code == 0
        if "relayed" not in WAYS[cluster].values():
            assert "goes through" not in table
            return
        assert "link lily-fern goes through rosa: neither can dial the other" in table
        code, output = gathering.run("lily", "doctor", "--cluster", "--json", "--check", "gate-closed")
        (closed,) = (one for one in json.loads(output[output.index("{") :])["findings"] if one["status"] == "warn")
        fix = closed["fixes"][0]
        if cluster == "nat":  # no command on the machine itself can do it
            assert "forward port 29500 to 10.77." in fix["note"]
            return
        assert gathering.lab[fix["machine"]].run(["bash", "-ec", "\n".join(fix["commands"])]).returncode == 0
        gathering.wait_until(lambda: "relayed" not in gathering.ways().values(), "the rule does not help", 20)


def test_gradients_may_go_directly_and_that_is_said(tmp_path):
    with Gathering(tmp_path) as gathering:
        host = gathering.host()
        host.expect("rosa is here", 60)
        gathering.join_all("lily", "fern")
        settings = [*SMALL, "--epochs", "2", "--experiment-name", "open", "--direct"]
        trained = gathering.start("lily", "train", *settings)
        assert trained.wait(60) == 0, trained.output
        assert "gradients go from machine to machine in the open (--direct)" in trained.output
        assert_every_step_is_whole(gathering.steps("open"), 64)


def test_a_gate_that_is_killed_starts_again_and_the_run_goes_on(tmp_path):
    with Gathering(tmp_path) as gathering:
        gathering.host().expect("rosa is here", 60)
        agents = gathering.join_all("lily", "fern")
        train = gathering.start("rosa", "train", *SMALL, "--epochs", "1000", "--experiment-name", "long")
        gathering.wait_for_step("long", 20, "lily")
        for name in ("lily", "rosa"):
            gathering.lab[name].run(["pkill", "-KILL", "--full", "potluck.gates.main"])
            killed_at = gathering.last_step("long")
            for one in ("lily", "rosa", "fern"):
                gathering.wait_for_step("long", killed_at + 40, one)
        agents["lily"].expect("the process that is this machine's gate has ended (-9); a new one starts", 5)
        assert gathering.run("rosa", "stop")[0] == 0
        assert train.wait(60) == 130, train.output
        assert_every_step_is_whole(gathering.steps("long"), 64, num_breaks=2)
        assert all(
            one["restarts"] == 0 for workers in gathering.status()["runs"][-1]["workers"].values() for one in workers
        )


@pytest.mark.real_world
def test_a_link_full_of_gradients_is_not_a_lost_machine(tmp_path):
    """A step sends for more than a second at full rate; heartbeats are missed after one."""
    with Gathering(tmp_path, LAPTOPS.replace("1gbit", "10mbit")) as gathering:
        gathering.host().expect("rosa is here", 60)
        gathering.join_all("lily", "fern")
        settings = ["--model-size", "base", "--num-samples", "640", "--epochs", "1", "--load-balance-policy", "static"]
        trained = gathering.start("rosa", "train", *settings, "--experiment-name", "full")
        assert trained.wait(180) == 0, trained.output
        assert " left at step" not in trained.output
        steps = gathering.steps("full", "lily")
        assert len({record.event.quorum_id for record in steps}) == 1
        assert_every_step_is_whole(gathering.steps("full"), 64)
        exchanges = sorted(record.event.timing.step_s for record in steps)
        assert exchanges[len(exchanges) // 2] > 1.0, "the link was not full"


@pytest.mark.real_world
def test_two_clusters_on_the_same_machines_do_not_meet(tmp_path):
    with Gathering(tmp_path) as gathering:
        gathering.host().expect("rosa is here", 60)
        gathering.join("lily")
        second = {name: {"POTLUCK_HOME": str(gathering.place(name) / "second")} for name in ("rosa", "lily")}
        other = gathering.start("lily", "host", "--port", "29700", env=second["lily"])
        line = other.expect("potluck join p1-", 30).split()[2]
        gathering.start("rosa", "join", line, "--port", "29700", env=second["rosa"]).expect("waiting for work", 30)
        first = gathering.start("rosa", "train", *SMALL, "--experiment-name", "first")
        beside = gathering.start("lily", "train", *SMALL, "--experiment-name", "beside", env=second["lily"])
        for train in (first, beside):
            assert train.wait(90) == 0, train.output
            assert "on rosa (cpu), lily (cpu)" in train.output or "on lily (cpu), rosa (cpu)" in train.output


def test_a_machine_without_a_loopback_interface_is_told_what_to_type(tmp_path):
    with Gathering(tmp_path) as gathering:
        gathering.host().expect("rosa is here", 60)
        gathering.lab["lily"].run(["ip", "link", "set", "dev", "lo", "down"])
        code, output = gathering.run("lily", "join", gathering.line)
        assert code != 0
        assert "loopback interface does not take" in output
        assert "ip link set dev lo up" in output
