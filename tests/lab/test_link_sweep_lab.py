"""A sweep finds the rate that a link has."""

from pathlib import Path

import pytest

from benchmarks.links import measure

CLUSTER = """
machines:
  - {name: oak, cores: 0.8, memory: 2G, link: 1gbit}
  - {name: elm, cores: 0.5, memory: 2G, link: 200mbit}
"""


@pytest.mark.needs_lab
@pytest.mark.real_world
def test_a_pair_is_as_fast_as_its_slower_link(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(CLUSTER)
    swept = measure(str(path))
    rate = swept.pairs["oak-elm"].bandwidth_bytes_per_s
    assert 0.8 * 25e6 < rate < 1.1 * 25e6
    assert swept.ring.bandwidth_bytes_per_s == pytest.approx(rate, rel=0.2)
