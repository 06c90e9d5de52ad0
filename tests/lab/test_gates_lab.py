"""Networks as homes have them: a router's address translation, a container's bridge, firewalls. Each trains."""

import json

import pytest

from benchmarks.gathering import SMALL, Gathering, samples_by_step
from lab.cluster_file import SHIPPED_DIR

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(240), pytest.mark.slow]
# What stands between the machines, and how the links between them go.
WAYS = {
    "nat": {"lily-rosa": "direct", "fern-rosa": "direct", "fern-lily": "relayed"},
    "bridge": {"lily-rosa": "direct", "box-rosa": "direct", "box-lily": "direct"},
    "oneway": {"lily-rosa": "direct", "fern-rosa": "direct", "fern-lily": "direct"},
    "guarded": {"lily-rosa": "direct", "fern-rosa": "direct", "fern-lily": "relayed"},
}


@pytest.mark.parametrize("cluster", WAYS)
def test_machines_that_reach_the_host_train_and_say_how_their_links_go(tmp_path, cluster):
    with Gathering(tmp_path, (SHIPPED_DIR / f"{cluster}.yaml").read_text()) as gathering:
        host = gathering.host()
        host.expect("rosa is here", 30)
        names = [machine.name for machine in gathering.lab.machines]
        gathering.join_all(*names[1:])
        trained = gathering.start(names[2], "train", *SMALL, "--epochs", "2", "--experiment-name", "first")
        assert trained.wait(90) == 0, trained.output
        assert set(samples_by_step(gathering.steps("first")).values()) == {64}
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
        host.expect("rosa is here", 30)
        gathering.join_all("lily", "fern")
        settings = [*SMALL, "--epochs", "2", "--experiment-name", "open", "--direct"]
        trained = gathering.start("lily", "train", *settings)
        assert trained.wait(60) == 0, trained.output
        assert "gradients go from machine to machine in the open (--direct)" in trained.output
        assert set(samples_by_step(gathering.steps("open")).values()) == {64}
