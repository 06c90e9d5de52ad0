"""Every benchmark in its shortest form: which tests run it, and how."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

ON_LOOPBACK = {
    "lighthouse": ["--members", "4", "--seconds", "1", "--json"],
    "many_machines": ["--machines", "3", "--ring", "2", "--json"],
    "many_agents": ["--agents", "4", "--seconds", "3", "--events", "10", "--core", "-1", "--json"],
    "overhead": ["--only", "mlp_50ms", "--seconds", "1", "--json"],
    "plain_loop": ["--steps", "12", "--json"],
    "tuned": ["--models", "simple_cnn", "--threads", "1", "--rounds", "2", "--json"],
    "replay_size": ["--workers", "3", "--events", "3000"],
}
IN_THE_LAB = {
    "alone": ["--only", "step_5ms", "--rounds", "1", "--seconds", "3", "--json"],
    "balance": ["--rounds", "1", "--steps", "6", "--batch", "32", "--policies", "dynamic", "--json"],
    "eventful": ["--steps", "400", "--batch", "48", "--json"],
    "fault_visibility": ["--epochs", "3", "--slow-at", "5", "--kill-at", "15", "--away", "0.5"],
    "from_ddp": ["--rounds", "1", "--epochs", "3", "--json"],
    "overlap": ["--steps", "4", "--batch", "400", "--json"],
    "prediction": ["--rounds", "1", "--steps", "4", "--batch", "32", "--model-size", "tiny", "--json"],
    "private": ["--only", "pair_reduce", "--json"],
    "simulated": ["--clusters", "pair", "--json"],
    "slow_links": [
        *("--cluster", "wifi", "--rows", "1000", "--batch", "16", "--modes", "exact", "--window", "2", "--seeds", "1"),
        *("--steps", "6", "--solo-seconds", "1", "--json"),
    ],
    "slowdown": ["--cluster", "pair", "--steps", "18", "--batch", "32", "--json"],
    "will_it_help": ["--cluster", "laptops", "--left-out", "fern", "--steps", "12", "--batch", "32", "--json"],
}
BY_TESTS_OF_THEIR_OWN = {
    "ddp_baseline": "tests/lab/test_lab_baseline.py",
    "faults": "tests/lab/test_engine_faults.py",
    "finetune": "tests/lab/test_finetune.py",
    "host_loss": "tests/lab/test_host_loss.py",
    "links": "tests/lab/test_link_sweep_lab.py",
    "outsider": "tests/lab/test_outsider.py",
    "service_siege": "tests/lab/test_outsider.py",
    "shared_data": "tests/lab/test_shared_data.py",
    "soak": "tests/lab/test_soak.py",
}


def run_shortest(name, arguments, timeout_s):
    """Run the benchmark; the figures of its last line. Exit code 1 is a bar that was missed, as short runs may."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    output = done.stdout + done.stderr
    assert done.returncode in (0, 1), output
    assert "Traceback" not in output, output
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures, output
    return figures
