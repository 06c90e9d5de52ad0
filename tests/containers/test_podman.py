"""The tests' own podman runs a container in which pip installs what this computer's pip installs."""

import pytest

from tests.containers.podman import Podman

pytestmark = [pytest.mark.real_world, pytest.mark.timeout(600)]


def test_pip_in_a_bare_container_installs_from_where_this_computer_does(podman: Podman, base: str) -> None:
    script = "python3 -m venv /v && /v/bin/pip install --quiet --no-deps msgspec && /v/bin/python -c 'import msgspec'"
    podman.run("run", "--rm", "--network", "host", *podman.volumes(), base, "sh", "-ec", script, timeout_s=300)
