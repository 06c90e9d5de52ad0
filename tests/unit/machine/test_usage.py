"""How busy the machine is."""

import time

from potluck.machine.usage import UsageMeter


def test_a_look_is_within_what_there_is_and_too_soon_is_none():
    meter = UsageMeter(every_s=0.5)
    assert meter.look() is None
    time.sleep(0.51)
    usage = meter.look()
    assert 0.0 <= usage.cpu <= 1.0
    assert 0 < usage.memory_bytes <= usage.memory_total_bytes
    assert usage.sent_bytes_per_s >= 0
    assert meter.look() is None
