"""LoRA over ordinary links: exact through a loss and a return, with little on the way, by `benchmarks.finetune`."""

import pytest

from tests.benchmark_runs import run_shortest

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(400), pytest.mark.real_world]


def test_lora_is_exact_through_a_kill_and_a_return_and_its_base_does_not_travel():
    arguments = ["--cluster", "wifi", "--only", "lora", "--steps", "48", "--batch", "40", "--json"]
    found = run_shortest("finetune", arguments, timeout_s=350)["lora"]
    assert found["difference"] <= 1e-6
    assert found["step_bytes"] < 1_000_000
    assert found["return_bytes"] < 2_000_000  # the base alone is 20 MB
