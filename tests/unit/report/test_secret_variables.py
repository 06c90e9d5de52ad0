"""Values of --env in variables that are called TOKEN, KEY, SECRET or PASSWORD: in run.yaml, and nowhere else."""

import json

import yaml

from potluck.meeting.host.readings import RunReading
from potluck.meeting.host.status import show_run
from potluck.meeting.transfer.run_tail import Pace
from potluck.meeting.wire import RunTask
from tests.unit.meeting.test_runs_on_machines import NOBODY, record
from tests.unit.report.runs import eventful
from tests.unit.report.test_pages import potluck

SECRET = "hf_abcdef"
WORDS = [
    f"HF_TOKEN={SECRET}",
    f"wandb_api_key={SECRET}=",
    f"A_Secret={SECRET}",
    f"DB_PASSWORD={SECRET}",
    "NCCL_DEBUG=1",
]
SHOWN = ["HF_TOKEN=...", "wandb_api_key=...", "A_Secret=...", "DB_PASSWORD=...", "NCCL_DEBUG=1"]


def test_no_page_or_table_shows_a_secret(workplace):
    runs_dir = workplace / "experiments"
    runs_dir.mkdir()
    for name, more in (("one", WORDS), ("other", ["HF_TOKEN=hf_abcdef2", "NCCL_DEBUG=2"])):
        file = eventful(runs_dir, name).settings_file
        file.write_text(yaml.safe_dump({"script": "own.py", "bundle": "abc", "env": more}))
    told = potluck("report", "one").output
    assert f"repeat it\n  potluck run {' '.join(f'--env {word}' for word in SHOWN)} own.py\n" in told
    shown = [told, potluck("report", "one", "--json").output, potluck("runs", "--json").output]
    shown += [potluck("compare", "one", "other", *more).output for more in ([], ["--json"], ["--csv"])]
    potluck("report", "one", "--html", "one.html")
    potluck("compare", "one", "other", "--html", "two.html")
    shown += [(workplace / name).read_text() for name in ("one.html", "two.html")]
    assert "NCCL_DEBUG=1" in shown[-1]
    assert not [text for text in shown if "hf_abcdef" in text]


def test_the_hosts_status_shows_no_secret_and_machines_get_it():
    for task in (RunTask(bundle="0" * 64, entry="own.py", env=WORDS), RunTask(settings={"env": WORDS, "seed": 1})):
        told = show_run(record("rosa").with_(task=task), RunReading(pace=Pace()), NOBODY)
        assert told["settings"]["env"] == SHOWN
        assert SECRET not in json.dumps(told)
        assert task.env_words == WORDS
