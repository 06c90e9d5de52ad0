"""Promise 3 on real machines: a lost machine costs the others seconds, no step and no bit."""

import pytest

from benchmarks.faults import FAULTS, Fault, measure

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(500), pytest.mark.real_world]
SHORT = [fault for fault in FAULTS if fault.name in ("kill, back after 3 s", "cable cut")]


@pytest.mark.parametrize("fault", SHORT, ids=lambda fault: fault.name)
def test_the_others_go_on_and_the_result_is_exact(fault: Fault) -> None:
    row = measure(fault)
    assert row.ok, row
