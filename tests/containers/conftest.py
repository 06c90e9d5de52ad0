"""Containers for tests: skipped with a reason where none can run; `podman` is set up once for all tests."""

import pytest

from tests.containers.podman import BASE, Podman, set_up, why_not


@pytest.fixture(scope="session")
def podman() -> Podman:
    """Podman with the tests' own storage and this computer's settings of pip; makes the base image if it is missing."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    return set_up()


@pytest.fixture(scope="session")
def base(podman: Podman) -> str:
    """The name of an image that has Debian and Python, and nothing of Potluck's."""
    return BASE
