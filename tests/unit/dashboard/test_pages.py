"""Every page over a real run, an empty folder, a half-written run, a crashed one and a damaged one."""

import sys

import pytest
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from potluck.cli import app
from potluck.dashboard import launching, warnings
from potluck.dashboard.launching import APP, addresses_elsewhere, is_local, plan_service
from potluck.dashboard.wrapped import wrapped_table
from potluck.doctor.finding import Finding
from potluck.events.log import EventLog
from potluck.meeting.access.token import dashboard_password, load_or_make_token
from tests.unit.report.runs import crashed, damaged, eventful, half_written, resumed

PAGES = ("Runs", "Run", "Compare")


@pytest.fixture
def open_page(workplace, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["app.py", str(workplace / "experiments")])
    (workplace / "experiments").mkdir()

    def open_it(page, **query):
        app = AppTest.from_file(str(APP), default_timeout=30)
        app.query_params["page"] = page
        for key, value in query.items():
            app.query_params[key] = value
        return app.run()

    open_it.runs_dir = workplace / "experiments"
    return open_it


def texts(app):
    kinds = (app.title, app.markdown, app.caption, app.info, app.warning, app.error, app.metric)
    return "\n".join(str(getattr(one, "body", None) or one.value) for kind in kinds for one in kind)


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_folder_says_what_to_do(open_page, page):
    app = open_page(page)
    assert not app.exception
    assert app.info[0].value


def test_the_real_run_is_all_there(open_page):
    eventful(open_page.runs_dir)
    app = open_page("Run", run="eventful")
    assert not app.exception, app.exception
    shown = texts(app)
    for words in ("eventful", "Throughput", "Shares", "A mean step, by cause", "Machines coming and going", "finished"):
        assert words in shown
    assert {metric.label: metric.value for metric in app.metric}["step of 336"] == "210"
    assert "Efficiency: 310.9 samples/s in these steps, against 437.2 samples/s, the sum of" in shown
    assert not app.error


def test_a_pause_is_not_running_time(open_page):
    resumed(open_page.runs_dir)
    app = open_page("Run", run="resumed")
    assert not app.exception, app.exception
    assert "finished, 9.1 s without pauses of 4.4 s, on lily, rosa, fern" in texts(app)


def test_long_lines_wrap_and_are_shown_as_they_are():
    page = wrapped_table(("after", "what"), [("1 s", "saved /a/" + "long/" * 60 + "<b>![x](http://x)")])
    assert "long/" * 60 + "&lt;b&gt;![x](http://x)</td>" in page
    assert "overflow-wrap: anywhere" in page


@pytest.mark.parametrize("make", [crashed, half_written, damaged])
@pytest.mark.parametrize("page", PAGES)
def test_what_is_wrong_with_a_run_is_said_and_nothing_breaks(open_page, make, page):
    folder = make(open_page.runs_dir)
    eventful(open_page.runs_dir)
    app = open_page(page, run=folder.name)
    assert not app.exception, app.exception
    if page == "Run":
        words = {
            "crashed": "the last one ended without a word",
            "half": "No step is committed",
            "damaged": "line 6 is damaged",
        }
        assert words[folder.name] in texts(app)


def test_a_comparison_leaves_a_damaged_run_out(open_page):
    damaged(open_page.runs_dir)
    eventful(open_page.runs_dir, "one")
    eventful(open_page.runs_dir, "two")
    app = open_page("Compare", runs=["one", "two", "damaged"])
    assert not app.exception, app.exception
    assert "damaged is left out" in app.error[0].value
    assert "Throughput" in texts(app)


def test_a_page_shows_what_was_written_since(open_page):
    folder = crashed(open_page.runs_dir)
    app = open_page("Run", run=folder.name)
    whole = eventful(open_page.runs_dir, "whole")
    for file in folder.event_files():
        file.write_bytes((whole.path / "events" / file.name).read_bytes())
    app.run()
    assert {metric.label: metric.value for metric in app.metric}["step of 336"] == "210"


def test_strangers_see_nothing_without_the_password(open_page, monkeypatch):
    eventful(open_page.runs_dir)
    monkeypatch.setenv("POTLUCK_DASHBOARD_PASSWORD", "a secret")
    app = open_page("Run")
    assert "eventful" not in texts(app)
    app.text_input[0].input("guess").run()
    assert "That is not the password." in texts(app)
    app.text_input[0].input("a secret").run()
    assert "eventful" in texts(app)


def test_the_password_on_a_hosts_machine_is_made_of_its_token_and_does_not_tell_it(workplace, monkeypatch):
    token = load_or_make_token(workplace / "home" / "host")
    told = []
    monkeypatch.setattr(launching, "serve", lambda served, _: told.append(served.password))
    for _ in range(2):  # the same after a restart
        shown = CliRunner().invoke(app, ["dashboard", "--address", "0.0.0.0"])
        assert f"password: {told[-1]}\n" in shown.output
    assert told == [dashboard_password(token)] * 2
    assert token.hex() not in shown.output
    CliRunner().invoke(app, ["dashboard"])
    assert told[-1] is None


def test_wider_than_this_machine_means_a_password():
    assert plan_service("127.0.0.1", 8501, None).password is None
    assert len(plan_service("0.0.0.0", 8501, None).password) >= 12
    assert plan_service("0.0.0.0", 8501, "known", "of the host").password == "known"
    assert plan_service("0.0.0.0", 8501, None, "of the host").password == "of the host"
    assert plan_service("127.0.0.1", 8501, None, "of the host").password is None
    assert [is_local(address) for address in ("localhost", "::1", "192.168.1.7", "rosa")] == [True, True, False, False]


@pytest.mark.parametrize("page", ["Runs", "Run"])
def test_the_doctor_warns_where_people_look(open_page, monkeypatch, page):
    found = [
        Finding(id="battery", machine="rosa", status="warn", what="on battery"),
        Finding(id="port-in-use", machine="rosa", status="fail", what="the host has it"),
        Finding(id="wifi", machine="rosa", status="ok", what="a cable"),
    ]
    monkeypatch.setattr(warnings, "examine_machine", lambda _: found)
    warnings._doctor_says.clear()
    log = EventLog(eventful(open_page.runs_dir).event_file("rosa", 0))  # somebody trains it
    shown = texts(open_page(page))
    log.close()
    warnings._doctor_says.clear()
    assert "The doctor says of this machine: on battery (fix: potluck doctor --check battery)" in shown
    assert shown.count("The doctor says") == 1


def test_the_address_for_other_machines_is_one_that_they_can_open():
    reachable = ["192.168.1.4", "10.0.0.4"]
    assert addresses_elsewhere("0.0.0.0", reachable) == reachable
    assert addresses_elsewhere("192.168.1.4", reachable) == ["192.168.1.4"]
    assert addresses_elsewhere("127.0.0.1", reachable) == []
