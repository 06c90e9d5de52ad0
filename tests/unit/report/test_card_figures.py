"""Cards in reports: how busy they were, memory, power, samples per joule, and why a card had nothing to do.

The run is a real one on three CPUs; its events are rewritten as workers with cards would have written them.
"""

import csv
import json
import re
from dataclasses import replace
from io import StringIO

import msgspec
import pytest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.core.words import counted
from potluck.events.log import read_records
from potluck.events.state import RunState
from potluck.events.types import GpuUse, MachineUsed, RunStarted, StepCommitted
from potluck.report.account import CAUSES
from potluck.report.cards import card_rows, energy_of
from potluck.report.idle_cards import idle_cards
from potluck.report.load import own_card
from potluck.report.page import make_page
from potluck.report.prometheus import expose
from potluck.report.rows import usage_rows
from potluck.report.story import tell
from potluck.report.view import read_run
from tests.unit.report.runs import eventful
from tests.unit.report.test_prometheus import samples

GIB = 2**30


def used(*gpus, cpu_power_w=None):
    numbers = {"memory_bytes": GIB, "memory_total_bytes": 8 * GIB, "sent_bytes_per_s": 0.0, "received_bytes_per_s": 0.0}
    return MachineUsed(cpu=0.5, seconds=5.0, gpus=list(gpus), cpu_power_w=cpu_power_w, **numbers)


def gpu(busy, power_w=None, number=0):
    memory = {"memory_bytes": 2 * GIB, "memory_total_bytes": 8 * GIB}
    return GpuUse(name="NVIDIA GeForce RTX 3070", id=f"GPU-{number}", busy=busy, power_w=power_w, **memory)


def rewrite(folder, machine, event, **started):
    """Let a machine's worker have started with this card, and measured `event` after every 20th step."""
    file = folder.event_file(machine, 0)
    events = []
    for record in read_records(file):
        is_start = isinstance(record.event, RunStarted)
        changed = msgspec.structs.replace(record.event, **started) if is_start else record.event
        events.append(msgspec.structs.replace(record, event=changed))
        if isinstance(record.event, StepCommitted) and record.event.step % 20 == 0:
            events.append(msgspec.structs.replace(record, event=event))
    numbered = [msgspec.structs.replace(record, sequence=number) for number, record in enumerate(events)]
    file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in numbered))


RTX = {"device": "cuda:0", "card": "RTX 3070", "card_id": "0"}


@pytest.fixture
def runs_dir(workplace):
    (workplace / "experiments").mkdir()
    return workplace / "experiments"


def all_on_cards(runs_dir, name="eventful", busy=0.2, cpu_power_w=None):
    folder = eventful(runs_dir, name)
    for machine in ("rosa", "lily", "fern"):
        rewrite(folder, machine, used(gpu(busy, power_w=100.0), cpu_power_w=cpu_power_w), **RTX)
    return folder


def test_a_report_names_cards_and_what_they_did(runs_dir):
    all_on_cards(runs_dir)
    told = CliRunner().invoke(app, ["report", "eventful"], env={"COLUMNS": "160"}).output
    assert "on         lily (RTX 3070), fern (RTX 3070), rosa (RTX 3070)" in told
    assert "rosa     RTX 3070  20.0 %  2.0 of 8.0 GiB  100 W" in told
    assert re.search(r"energy     1\.\d+ samples per joule at \d+ W, of the cards only", told)
    data = json.loads(CliRunner().invoke(app, ["report", "eventful", "--json"]).output)
    assert [row["busy"] for row in data["devices"]["cards"]] == [pytest.approx(0.2)] * 3


def test_the_page_has_a_table_of_cards(runs_dir):
    story = tell(read_run(all_on_cards(runs_dir)))
    plots = dict.fromkeys(("throughput", "loss", "scores", "shares", "presence", "step_parts"), "")
    more = {
        "causes": CAUSES,
        "counted": counted,
        "basis": "",
        "open_with": "",
        "explanations": [],
        "began": "",
        "settings": {},
    }
    page = make_page("page.html.j2", story=story, svg=plots, **more)
    assert "<td>RTX 3070</td>" in page
    assert "computed less than half of the time" in page


def test_samples_per_joule_are_throughput_by_power(runs_dir):
    view = read_run(all_on_cards(runs_dir))
    energy = energy_of(view)
    assert energy.samples_per_joule == pytest.approx(view.merge.samples_per_s / energy.power_w)
    assert energy.power_w == pytest.approx(300, rel=0.1)  # lily was away for a while
    assert len(energy.without) == 3
    with_processors = energy_of(read_run(all_on_cards(runs_dir, "both", cpu_power_w=50.0)))
    assert with_processors.power_w == pytest.approx(450, rel=0.1)
    assert "of cards and processors" in with_processors.text


def test_samples_per_joule_are_not_told_while_a_machine_that_trained_has_no_known_power(runs_dir):
    folder = eventful(runs_dir)
    rewrite(folder, "rosa", used(gpu(0.9, power_w=100.0)), **RTX)
    rewrite(folder, "lily", used(cpu_power_w=30.0))
    assert energy_of(read_run(folder)) is None  # of fern nothing is known
    rewrite(folder, "fern", used(cpu_power_w=30.0))
    view = read_run(folder)
    assert energy_of(view).power_w == pytest.approx(160, rel=0.1)
    assert energy_of(view).text.endswith("of cards and processors, without the processors of rosa")


def test_an_idle_card_is_named_with_its_cause_and_a_busy_or_short_one_is_not(runs_dir):
    story = tell(read_run(all_on_cards(runs_dir)))
    assert len(story.devices.findings) == 3
    [fern] = [line for line in story.devices.findings if line.startswith("fern's")]
    assert fern.startswith("fern's RTX 3070 (20.0 %) computed less than half of the time: ")
    assert "of a step is waiting for" in fern
    assert tell(read_run(all_on_cards(runs_dir, "busy", busy=0.9))).devices.findings == ()
    rows = story.devices.cards
    assert idle_cards(tuple(replace(row, measured_s=5.0) for row in rows), story.account) == ()
    assert "why is not known" in idle_cards(rows, None)[0]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("data_wait", "--loader-workers 4"),
        ("rest", "do less in the script"),
        ("straggler_wait", "mostly for "),
        ("exposed_exchange", "a larger --global-batch"),
        ("compute", "--enable-profiling"),
    ],
)
def test_each_cause_comes_with_what_to_change(runs_dir, part, words):
    view = read_run(all_on_cards(runs_dir))
    parts = {"compute": 1.0, "data_wait": 0.01, "rest": 0.01, "straggler_wait": 0.01, "exposed_exchange": 0.01}
    account = replace(view.account(), step_parts_s={"rosa": {**parts, part: 2.0}})
    [line] = [line for line in idle_cards(card_rows(view), account) if line.startswith("rosa's")]
    assert words in line


def test_compare_plots_and_prometheus_have_the_cards(runs_dir):
    all_on_cards(runs_dir)
    eventful(runs_dir, "without")
    told = CliRunner().invoke(app, ["compare", "eventful", "without"], env={"COLUMNS": "160"}).output
    for words in ("cards busy", "memory of the fullest card", "power of the cards", "300 W", "samples per joule"):
        assert words in told
    text = CliRunner().invoke(app, ["compare", "eventful", "without", "--csv"]).output
    first, second = csv.DictReader(StringIO(text))
    assert float(first["card_busy"]) == pytest.approx(0.2)
    assert second["card_busy"] == ""
    view = read_run(eventful(runs_dir, "plain"))
    assert energy_of(view) is None
    assert card_rows(view) == ()
    view = read_run(all_on_cards(runs_dir, "cards"))
    assert {"GPU busy, %", "GPU memory, %", "GPU power, W"} <= {row["what"] for row in usage_rows(view)}
    found = samples(expose([view]))
    assert found["potluck_card_busy", ("cards", "rosa", "RTX 3070")] == 0.2
    assert found["potluck_card_memory_bytes", ("cards", "rosa", "RTX 3070")] == 2 * GIB
    assert found["potluck_card_power_watts", ("cards", "lily", "RTX 3070")] == 100.0
    assert found["potluck_run_samples_per_joule", ("cards",)] > 0


def test_a_workers_card_is_found_by_its_uuid_else_by_its_label():
    twins = [("NVIDIA GeForce RTX 3070", "GPU-a"), ("NVIDIA GeForce RTX 3070", "GPU-b")]
    assert own_card(RunState(device="cuda:0", card="RTX 3070 (1 of 2)", card_id="b"), twins) == 1
    assert own_card(RunState(device="cuda:1", card="RTX 3070 (2 of 2)"), [(name, "") for name, _ in twins]) == 1
    assert own_card(RunState(device="cuda:0"), twins) is None
    assert own_card(RunState(device="cuda:0"), twins[:1]) == 0
    assert own_card(RunState(device="cpu"), twins) is None
