"""What the drivers of graphics cards say, through the same library calls and files as on a machine that has cards.

There is no card here: the library is a stub in C with NVML's own signatures (tests/nvml), loaded by pynvml in processes
of their own, and the files of AMD's driver and of the energy counters are written by the tests.
"""

import json
import os
import subprocess
import sys
import textwrap
import time

import pytest

from potluck.machine.card_meter import CardMeter
from potluck.machine.processor_power import ProcessorPower
from tests.nvml.building import build


def with_nvml(script, *arguments, **variables):
    """What a script prints as JSON in a process that has two NVIDIA cards."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        env={**os.environ, "LD_LIBRARY_PATH": str(build()), **variables},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return json.loads(done.stdout)


LOOK = """
    import json, time
    from dataclasses import asdict
    from potluck.machine.card_meter import CardMeter
    meter = CardMeter()
    first = meter.look()
    time.sleep(0.2)
    print(json.dumps([[asdict(card) for card in cards] for cards in (first, meter.look())]))
"""


def test_two_cards_report_name_use_memory_and_power():
    at_once, later = with_nvml(LOOK, NVML_BUSY="37", NVML_TAKEN="1024")
    assert [card["name"] for card in later] == ["Maker Stand-In 1"] * 2
    assert [card["id"][-2:] for card in later] == ["00", "01"]
    assert [card["busy"] for card in later] == [0.37, 0.37]
    assert [card["memory_bytes"] >> 20 for card in later] == [1536, 512]
    assert later[0]["memory_total_bytes"] == 8 << 30
    assert [card["power_w"] for card in at_once] == [180.0, 90.0]
    assert [card["power_w"] for card in later] == pytest.approx([180.0, 90.0], rel=0.1)  # from the energy counters


def test_what_a_driver_does_not_tell_is_not_known():
    _, later = with_nvml(LOOK, NVML_WITHOUT="power energy")
    assert [card["power_w"] for card in later] == [None, None]
    _, later = with_nvml(LOOK, NVML_WITHOUT="energy")
    assert [card["power_w"] for card in later] == [180.0, 90.0]


FACTS = """
    import json, msgspec
    from potluck.machine.gpus import read_gpus
    cards, gap = read_gpus()
    print(json.dumps([gap, [msgspec.to_builtins(card) for card in cards]]))
"""


def test_facts_name_programs_on_a_card_but_not_those_of_potluck():
    gap, (first, second) = with_nvml(FACTS, NVML_PID=str(os.getpid()), NVML_TAKEN="3000", NVML_BUSY="80")
    assert gap == ""
    assert (first["name"], first["driver"], first["capability"]) == ("Maker Stand-In 1", "570.86.10", "8.6")
    assert (first["used_bytes"] >> 20, first["busy"]) == (3512, 0.8)
    assert [(one["pid"], one["memory_bytes"] >> 20) for one in first["programs"]] == [(os.getpid(), 3000)]
    assert second["programs"] == []
    own = subprocess.Popen(["potluck", "60"], executable="/bin/sleep")
    try:
        _, (first, _) = with_nvml(FACTS, NVML_PID=str(own.pid))
    finally:
        own.kill()
        own.wait()
    assert first["programs"] == []


def test_a_driver_that_lists_no_programs_leaves_them_unknown():
    _, cards = with_nvml(FACTS, NVML_WITHOUT="processes")
    assert all("programs" not in card for card in cards)


def test_amd_cards_are_read_from_the_files_of_their_driver(tmp_path):
    device = tmp_path / "card1" / "device"
    (device / "hwmon" / "hwmon3").mkdir(parents=True)
    for file, text in {
        "vendor": "0x1002",
        "product_name": "AMD Radeon RX 6700 XT",
        "unique_id": "d0d6f9a1",
        "gpu_busy_percent": "64",
        "mem_info_vram_used": "2147483648",
        "mem_info_vram_total": "12884901888",
        "hwmon/hwmon3/power1_average": "130000000",
    }.items():
        (device / file).write_text(f"{text}\n")
    (tmp_path / "card2" / "device").mkdir(parents=True)
    (tmp_path / "card2" / "device" / "vendor").write_text("0x8086\n")
    [card] = CardMeter(tmp_path).look()
    assert (card.name, card.busy, card.power_w) == ("AMD Radeon RX 6700 XT", 0.64, 130.0)
    assert (card.memory_bytes, card.memory_total_bytes) == (2 << 30, 12 << 30)
    (device / "gpu_busy_percent").write_text("N/A\n")
    (device / "hwmon/hwmon3/power1_average").unlink()
    [card] = CardMeter(tmp_path).look()
    assert (card.busy, card.power_w) == (None, None)


def test_processor_power_is_energy_by_time_and_survives_a_counter_that_starts_again(tmp_path):
    for zone, name, energy in (("intel-rapl:0", "package-0", 900_000), ("intel-rapl:0:0", "core", 5)):
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(f"{name}\n")
        (tmp_path / zone / "energy_uj").write_text(f"{energy}\n")
        (tmp_path / zone / "max_energy_range_uj").write_text("1000000\n")
    power, began = ProcessorPower(tmp_path), time.monotonic()
    time.sleep(0.05)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("400000\n")
    watts = power.look()
    assert 0.0 < watts <= 0.5 / 0.05
    assert watts >= 0.5 / (time.monotonic() - began)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert power.look() is None
    assert ProcessorPower(tmp_path / "nothing").look() is None
