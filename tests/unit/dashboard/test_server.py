"""The dashboard's own process: it says where it is when it is there, and nothing else."""

import os
import socket
import subprocess
import sys
import urllib.request

import pytest

from potluck.core.errors import ReportError
from potluck.dashboard.launching import check_port
from potluck.dashboard.server import shown_address


@pytest.mark.timeout(120)
def test_the_address_is_told_when_it_answers_and_streamlit_keeps_quiet(workplace):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "potluck", "dashboard", "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "HOME": str(workplace)},
    )
    try:
        assert process.stdout.readline().startswith("starting the dashboard of the runs in ")
        assert process.stdout.readline() == f"the dashboard is at http://127.0.0.1:{port}\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as page:
            assert page.status == 200
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=60)
    assert rest == ""


def test_a_port_that_another_program_has_is_refused_with_the_next():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ReportError, match="cannot listen") as error:
            check_port("127.0.0.1", port)
    assert "--port" in error.value.fix


def test_an_address_is_shown_as_a_browser_takes_it():
    assert shown_address("0.0.0.0", 8501) == "http://localhost:8501"
    assert shown_address("::1", 8501) == "http://[::1]:8501"
    assert shown_address("192.168.1.7", 80) == "http://192.168.1.7:80"
