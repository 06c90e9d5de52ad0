"""The doctor's all-reduce in real processes: on the CPU, and through host memory for a device without a backend."""

import json
import subprocess
import sys

import pytest

from potluck.doctor.probing.ports import free_port

HERE = "127.0.0.1"


def reduce_on(devices, variables):
    """Each process's answer; the processes meet on loopback as those of two machines do through their gates."""
    port = free_port(HERE)
    processes = []
    for rank, device in enumerate(devices):
        order = {
            "machine": f"machine{rank}",
            "meeting": HERE,
            "port": port,
            "rank": rank,
            "num_machines": len(devices),
            "address": HERE,
            "timeout_s": 60.0,
            "backend": "gloo",
            "device": device,
            "lan_peers": [],
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "potluck.probes.all_reduce"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=variables,
        )
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        processes.append(process)
    answers = []
    for process in processes:
        output, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
        answers.append([json.loads(line) for line in output.splitlines() if line.startswith("{")])
    return answers


@pytest.mark.parametrize("devices", [("cpu", "cpu"), ("standin:0", "cpu")], ids=str)
def test_the_sum_is_right_on_every_device(on_device, devices):
    answers = reduce_on(devices, on_device)
    for (facts, told), device in zip(answers, devices, strict=True):
        assert facts["devices"] == ["standin:0", "standin:1"]
        assert told["is_sum_right"]
        assert told["names"] == ["machine0", "machine1"]
        assert (told["backend"], told["device"], told["variables"]) == ("gloo", device, {})
        assert all(seconds > 0 for seconds in told["seconds"].values())
