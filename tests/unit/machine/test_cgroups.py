"""Limits of cgroups, read from folders as Linux lays them out."""

import pytest

from potluck.machine import cgroups, hardware
from potluck.measuring import memory


@pytest.fixture
def linux(tmp_path, monkeypatch):
    """Write files of /proc/self and /sys/fs/cgroup, by their paths."""
    monkeypatch.setattr(cgroups, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(cgroups, "_CGROUPS", tmp_path / "cgroup")

    def write(own, **files):
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(own)
        for path, text in files.items():
            file = tmp_path / "cgroup" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    return write


def test_the_quota_of_a_parent_holds_too(linux):
    linux(
        "0::/user.slice/run.scope\n",
        **{"user.slice/run.scope/cpu.max": "max 100000\n", "user.slice/cpu.max": "150000 100000\n"},
    )
    assert hardware._quota_cores() == 1.5


def test_the_smallest_quota_counts(linux):
    linux("0::/a/b\n", **{"a/b/cpu.max": "200000 100000\n", "a/cpu.max": "50000 100000\n", "cpu.max": "max 100000\n"})
    assert hardware._quota_cores() == 0.5


def test_in_a_container_whose_path_is_that_of_the_computer_outside_the_root_counts(linux):
    linux(
        "4:cpu,cpuacct:/docker/0123\n3:memory:/docker/0123\n",
        **{
            "cpu,cpuacct/cpu.cfs_quota_us": "60000\n",
            "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": "1000\n",
            "memory/memory.usage_in_bytes": "300\n",
            "memory/memory.stat": "cache 5\ntotal_inactive_file 20\n",
        },
    )
    assert hardware._quota_cores() == 0.6
    assert list(memory._cgroup_room()) == [720]


def test_no_quota_is_none(linux):
    linux(
        "4:cpu,cpuacct:/\n0::/\n",
        **{"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n", "cpu.max": ""},
    )
    assert hardware._quota_cores() is None
