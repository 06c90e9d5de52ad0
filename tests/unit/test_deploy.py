"""The files for schedulers: the script is sound shell, and the manifest is what its words promise."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_slurm_script_is_sound():
    done = subprocess.run(["shellcheck", DEPLOY / "slurm.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_slurm_script_hands_each_task_its_rank_and_goes_on_without_a_lost_one(tmp_path):
    """Run with stand-ins for SLURM's programs, which need a cluster."""
    tools = {
        "scontrol": "echo first-node; echo second-node",
        "srun": 'shift; SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=2 exec "$@"',
        "potluck": 'echo "$@ rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, $MASTER_ADDR:$MASTER_PORT"',
    }
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    told = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_ID": "7"}
    done = subprocess.run(
        [DEPLOY / "slurm.sh", "train", "--epochs", "2"], env=told, capture_output=True, text=True, check=True
    )
    assert done.stdout == "train --epochs 2 rank 3 of 4, 1 of 2, first-node:20007\n"
    assert "--kill-on-bad-exit=0" in (DEPLOY / "slurm.sh").read_text()


def test_the_manifest_has_a_host_that_is_alone_and_machines_that_keep_their_names():
    parts = {
        (one["kind"], one["metadata"]["name"]): one
        for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    }
    host, machines = parts["Deployment", "potluck-host"]["spec"], parts["StatefulSet", "potluck-machine"]["spec"]
    assert (host["replicas"], host["strategy"]["type"]) == (1, "Recreate")
    (service,) = parts["Service", "potluck-host"]["spec"]["ports"]
    (container,) = host["template"]["spec"]["containers"]
    assert container["ports"][0]["containerPort"] == service["targetPort"] == 29500
    assert container["args"][-1] == "potluck-host"  # the address that machines dial
    (machine,) = machines["template"]["spec"]["containers"]
    assert {one["name"] for one in machine["env"]} == {"POTLUCK_NAME", "POTLUCK_JOIN"}
    for spec in (host, machines):
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
