"""Law: no table shortens a word, on a terminal of 80 columns, on a narrower one, or in a pipe."""

from io import StringIO

import pytest
from rich.console import Console
from typer.testing import CliRunner

from potluck.cli import app
from potluck.cli.account_tables import show_account
from potluck.cli.fitting import print_table
from potluck.cli.plan_tables import plain_table, show_outlook, show_profiles
from potluck.cli.roster_display import SPARE, machines_table
from potluck.cli.story_tables import show_comparison, show_story
from potluck.cli.tables import SPARE as RUNS_SPARE
from potluck.cli.tables import runs_table
from potluck.core.run_folder import RunFolder
from potluck.events.log import EventLog
from potluck.events.types import RunEnded, RunStarted, StepCommitted, TrainingBegan
from potluck.measuring.profile_store import StoredProfile
from potluck.meeting.questions import LinkSeen, LinksSwept
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.costs import ComputeProfile, Exchange, LinkProfile
from potluck.planning.outlook import look_ahead
from potluck.report.account import Account, Loss
from potluck.report.compare import compare
from potluck.report.runs import list_runs
from potluck.report.story import tell
from potluck.report.view import read_run

MACHINES = ("rosa", "the-laptop-of-anna-in-the-attic")
RUNS = ("a-run-with-quite-a-long-name-1", "a-run-with-quite-a-long-name-2", "a-run-with-quite-a-long-name-3")
SYSTEM = "Debian GNU/Linux 12 (bookworm)"


def status():
    facts = {"state": "here", "run": RUNS[0], "trains": True, "devices": ["cuda:0"], "samples_per_s": 12345.0}
    facts["cards"] = {"cuda:0": "RTX 3060 Laptop"}
    seen = {"last_heard_s": 3.0, "os": SYSTEM, "cores": 1}
    return {"host": "rosa", "machines": [{"machine": machine, **facts, **seen} for machine in MACHINES]}


def make_runs(runs_dir):
    for number, name in enumerate(RUNS):
        folder = RunFolder(runs_dir / name)
        settings = {"script": f"train_{number}.py"} if number == 2 else {"model": "cnn", "global_batch": 64 + number}
        log = EventLog(folder.event_file(MACHINES[1], 0))
        folder.settings_file.write_text("".join(f"{key}: {value}\n" for key, value in {"seed": 0, **settings}.items()))
        started = {"process_id": 1, "device": "cpu", "mixed_precision": "no", "versions": {}}
        log.append(RunStarted(run=name, machine=MACHINES[1], worker=0, **started))
        log.append(TrainingBegan(num_samples=640, global_batch=64, steps_per_epoch=10, num_epochs=1, last_step=10))
        for step in range(1, 11):
            log.append(StepCommitted(step=step, epoch=0, samples=64, own_samples=64, loss=0.25, seconds=0.001))
        log.append(RunEnded(reason="finished", step=10))
        log.close()
    return [read_run(RunFolder(runs_dir / name)) for name in RUNS]


def show_status(console, _):
    print_table(console, machines_table(status()), SPARE)
    return [*MACHINES, "here", RUNS[0], "12,345", "RTX 3060 Laptop"]


def show_runs(console, runs_dir):
    make_runs(runs_dir)
    print_table(console, runs_table(list_runs(runs_dir)), RUNS_SPARE)
    return [*RUNS, "finished", "10/10", "0.2500"]


def show_compare(console, runs_dir):
    show_comparison(console, compare(make_runs(runs_dir)))
    return [*RUNS, "samples/s", "of its own estimate", "global_batch", "64", "65"]


def show_report(console, runs_dir):
    show_story(console, tell(make_runs(runs_dir)[0]))
    return [MACHINES[1], "steps away", "640"]


def show_plan(console, _):
    compute = ComputeProfile(fixed_s=0.001, per_sample_s=0.003)
    workers = [Worker(name=f"{machine}-0", machine=machine, compute=compute) for machine in MACHINES]
    links = {machine: LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=12.5e6) for machine in MACHINES}
    cluster = Cluster(workers=tuple(workers), links=links, exchange=Exchange(num_bytes=1_000_000))
    show_outlook(console, look_ahead(cluster, 64, "dynamic", [], cable_bytes_per_s=1e9), "1gbit")
    return [f"{MACHINES[1]}-0", "100 Mbit/s", "of the sum"]


def show_profile(console, _):
    link = LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=12.5e6)
    compute = ComputeProfile(fixed_s=0.012, per_sample_s=0.003, memory_cap=32)
    kind = {"device": "cuda:0", "model": "resnet18-base", "precision": "no", "gradient_bytes": 44_000_000}
    profiles = [StoredProfile(machine=machine, compute=compute, link=link, **kind) for machine in MACHINES]
    seen = LinkSeen(latency_s=1e-4, bytes_per_s=12.5e6, error=0.0)
    show_profiles(console, profiles, LinksSwept(ring=seen, pairs={"-".join(MACHINES): seen}, machines={}), 64)
    return [*MACHINES, "cuda:0", "12 ms", "32 samples", "-".join(MACHINES), "100 us"]


def show_end(console, _):
    losses = [Loss(cause="exposed_exchange", machine=machine, seconds=5, waited_s=2, part=0.1) for machine in MACHINES]
    solo = dict.fromkeys(MACHINES, 200.0)
    figures = {"num_steps": 9, "wall_s": 20.0, "accounted_s": 20.0, "samples_per_s": 300.0}
    predicted = {"predicted_samples_per_s": 315.0, "predicted_error": 0.03}
    account = Account(
        **figures,
        **predicted,
        solo_samples_per_s=solo,
        losses=tuple(losses),
        num_plan_changes=1,
        benched={},
        slowest_link=MACHINES[1],
    )
    show_account(console, account)
    return [MACHINES[0], MACHINES[1], "10.0 %"]


SHOWN = [show_status, show_runs, show_compare, show_report, show_plan, show_profile, show_end]


@pytest.mark.parametrize("show", SHOWN)
@pytest.mark.parametrize(("width", "is_terminal"), [(80, True), (40, True), (80, False)])
def test_what_matters_is_never_shortened(show, width, is_terminal, tmp_path):
    output = StringIO()
    wanted = show(Console(file=output, width=width, force_terminal=is_terminal, color_system=None), tmp_path)
    text = output.getvalue()
    assert "…" not in text
    for words in wanted:
        assert words in text


def test_a_terminal_of_80_columns_gets_a_table_that_fits_it():
    output = StringIO()
    short = status()
    short["machines"][1]["machine"], short["machines"][0]["run"], short["machines"][1]["run"] = "lily", "", "first"
    console = Console(file=output, width=80, force_terminal=True, color_system=None)
    print_table(console, machines_table(short), SPARE)
    lines = output.getvalue().splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert SYSTEM not in output.getvalue()


def test_a_pipe_gets_every_column_whatever_its_width():
    output = StringIO()
    print_table(Console(file=output, width=80), machines_table(status()), SPARE)
    assert len(output.getvalue().splitlines()) == 3
    assert output.getvalue().count(f"{SYSTEM}, 1 core") == 2


def test_a_table_that_does_not_fit_becomes_a_block_of_lines_a_row():
    table = plain_table("setting", "first", "second")
    table.add_row("learning_rate", "0.1", "0.2")
    output = StringIO()
    print_table(Console(file=output, width=20, force_terminal=True, color_system=None), table)
    assert output.getvalue() == "learning_rate\n  first   0.1\n  second  0.2\n"


def test_settings_that_differ_are_those_that_two_runs_have_with_different_values(tmp_path):
    assert list(compare(make_runs(tmp_path)).differing) == ["global_batch"]


@pytest.mark.parametrize("command", [["runs"], ["compare", *RUNS], ["report", RUNS[0]]])
def test_a_piped_command_prints_whole_words(command, workplace):
    make_runs(workplace / "experiments")
    result = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert "…" not in result.output
    assert RUNS[0] in result.output
