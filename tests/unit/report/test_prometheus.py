"""What a scrape says is the text format that Prometheus reads."""

import json
import re
from pathlib import Path

from potluck.core.run_folder import RunFolder
from potluck.report.prometheus import expose
from potluck.report.view import RunView, read_run
from tests.unit.report.runs import EVENTFUL, half_written

LINE = re.compile(r'(potluck_\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')


def samples(text):
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = LINE.fullmatch(line).groups()
            found[name, tuple(re.findall(r'\w+="([^"]*)"', labels))] = float(value)
    return found


def test_every_value_has_a_name_labels_and_a_help():
    text = expose([read_run(RunFolder(EVENTFUL))])
    found = samples(text)
    assert found["potluck_run_step", ("eventful",)] == 210
    assert found["potluck_machine_here", ("eventful", "lily")] == 1
    shares = [value for (name, _), value in found.items() if name == "potluck_machine_share"]
    assert sum(shares) == 1.0
    for name, _ in found:
        assert text.count(f"# HELP {name} ") == text.count(f"# TYPE {name} gauge\n") == 1


def test_what_is_not_known_is_left_out(tmp_path):
    found = samples(expose([read_run(half_written(tmp_path)), RunView(RunFolder(tmp_path / "nothing"))]))
    assert not [name for name, _ in found if name in ("potluck_run_loss", "potluck_run_efficiency")]


def test_the_grafana_file_asks_for_metrics_that_there_are():
    dashboard = (Path(__file__).parents[3] / "docs" / "grafana" / "potluck.json").read_text()
    from potluck.report import prometheus

    asked = set(re.findall(r"potluck_\w+", dashboard))
    assert asked <= set(prometheus._HELP)
    assert json.loads(dashboard)["panels"]
