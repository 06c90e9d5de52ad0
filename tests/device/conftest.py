"""The stand-in accelerator for tests of this folder; only processes that they start know it."""

import subprocess
import sys
import textwrap

import pytest

from tests.device.building import has_compiler, standin_environment


@pytest.fixture(scope="session")
def on_device():
    """The variables with which a Python process knows the stand-in accelerator."""
    if not has_compiler():
        pytest.skip("the stand-in accelerator is built with g++, which is not installed")
    return standin_environment()


@pytest.fixture
def python(on_device, workplace):
    """Run a script in a process that knows the device; returns what it printed."""

    def run(script, **variables):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env={**on_device, "POTLUCK_HOME": str(workplace / "home"), **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def pytest_collection_modifyitems(items):
    """The first test compiles, which takes minutes on a busy computer."""
    for item in items:
        if "on_device" in item.fixturenames:
            item.add_marker(pytest.mark.timeout(600))
