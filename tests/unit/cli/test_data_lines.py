"""A run's display says how much of the data has arrived: now and then, and once at the end."""

from potluck.cli import data_lines
from potluck.cli.data_lines import DataTeller

BOTH = ["rosa", "lily"]


def data(**have):
    return {"folders": [], "machines": {name: {"have_bytes": one, "total_bytes": 100} for name, one in have.items()}}


def test_it_is_told_now_and_then_and_once_when_all_has_arrived(monkeypatch):
    now = 0.0
    monkeypatch.setattr(data_lines.time, "monotonic", lambda: now)
    teller = DataTeller()
    assert teller.line(None, BOTH) == ""
    assert teller.line(data(rosa=100), BOTH) == ""  # lily has not begun
    assert teller.line(data(rosa=100, lily=1), BOTH) == ""
    now = 11.0
    assert teller.line(data(rosa=100, lily=48), BOTH) == "data: rosa all, lily 48%"
    assert teller.line(data(rosa=100, lily=49), BOTH) == ""
    assert teller.line(data(rosa=100, lily=100), BOTH) == "data: every machine has all of it"
    assert teller.line(data(rosa=100, lily=100), BOTH) == ""


def test_a_machine_alone_is_not_told_of():
    assert DataTeller().line(data(rosa=100), ["rosa"]) == ""
