"""--devices: a number of devices, or their names."""

import pytest

from potluck.core.errors import SettingsError
from potluck.machine.device_list import read_devices

FOUND = ["cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("1", ["cuda:0"]),
        ("2", FOUND),
        ("cuda:1, cpu", ["cuda:1", "cpu"]),
        ("cpu,cpu", ["cpu", "cpu"]),
        ("xpu", ["xpu"]),
    ],
)
def test_a_number_takes_the_first_and_names_are_taken_as_they_are(text, devices):
    assert read_devices(text, lambda: FOUND) == devices


@pytest.mark.parametrize(("text", "error"), [("3", "2 devices: cuda:0, cuda:1"), ("0", "nothing"), ("-1", "names no")])
def test_what_is_not_there_is_refused(text, error):
    with pytest.raises(SettingsError, match=error):
        read_devices(text, lambda: FOUND)
