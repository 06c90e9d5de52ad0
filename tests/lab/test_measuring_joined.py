"""Three joined machines are measured from one of them, links included; plans and runs use it and are held to it."""

import json

import pytest

from benchmarks.support.gathering import KEPT, MACHINES, Gathering

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(200), pytest.mark.real_world]
LINKS = {"rosa": "1gbit", "lily": "1gbit", "fern": "100mbit"}
CLUSTER = "machines:\n" + "".join(
    f"  - {{name: {name}, cores: 0.65, memory: 3G, link: {link}, resolves: false}}\n" for name, link in LINKS.items()
)
MODEL = ["--model", "simple_cnn", "--model-size", "small"]


def last_json(output):
    return json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))


def test_all_joined_machines_are_measured_planned_for_and_held_to_it(tmp_path):
    with Gathering(tmp_path, CLUSTER) as gathering:
        gathering.host().expect("rosa is here", 60)
        for name in ("lily", "fern"):
            gathering.join(name)
        code, output = gathering.run("lily", "plan", *MODEL)
        assert code == 1
        assert "measure all of them: potluck profile --model simple_cnn --model-size small" in output

        code, output = gathering.run("lily", "profile", *MODEL, "--seconds", "1", "--json", timeout_s=100)
        assert code == 0, output
        told = last_json(output)
        print(output)
        assert [one["machine"] for one in told["profiles"]] == list(MACHINES)
        rates = {one["machine"]: one["link"]["bandwidth_bytes_per_s"] for one in told["profiles"]}
        assert 0.75 * 12.5e6 < rates["fern"] < 1.1 * 12.5e6
        assert min(rates["rosa"], rates["lily"]) > 2 * rates["fern"]
        alone = [one["trial"][str(max(map(int, one["trial"])))] for one in told["profiles"]]
        assert max(alone) < 2 * min(alone)  # machines that are alike
        assert set(told["links"]["pairs"]) == {"rosa-lily", "rosa-fern", "lily-fern"}
        assert told["links"]["ring"]["bytes_per_s"] == pytest.approx(rates["fern"], rel=0.3)

        code, output = gathering.run("fern", "plan", *MODEL, "--json")
        assert code == 0, output
        plan = last_json(output)
        assert set(plan["shares"]) == {"rosa-0", "lily-0", "fern-0"}
        assert sum(plan["shares"].values()) == 64
        assert not any("nobody measured the link" in line for line in plan["explanation"])
        print(gathering.run("rosa", "plan", *MODEL)[1])

        settings = [*MODEL, "--num-samples", "1280", *KEPT, "--experiment-name", "held"]
        training = gathering.start("lily", "train", *settings)
        assert training.wait(60) == 0, training.output
        print(training.output)
        assert "when each trains alone" in training.output
        account = json.loads((gathering.home_run("held") / "account.json").read_text())
        assert set(account["solo_samples_per_s"]) == set(MACHINES)
        assert account["slowest_link"] == "fern"
        assert "fern's link" in training.output
        assert account["efficiency"] + sum(account["lost_by_cause"].values()) == pytest.approx(1.0)
