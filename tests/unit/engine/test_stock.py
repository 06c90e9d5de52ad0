"""Gloo groups of a script that does not use Potluck."""

import gc
import weakref

from torch import distributed

from potluck.engine.group.stock import _gated


def test_groups_live_as_long_as_the_script():
    """Else DDP's reducer may be the last to hold one, and torch's destructors wait for each other."""
    device = distributed.ProcessGroupGloo.create_device(hostname="127.0.0.1")
    gated = _gated(lambda: (device, None, ""))
    group = weakref.ref(gated(distributed.HashStore(), 0, 1))
    gc.collect()
    assert group() is not None
    del gated
    gc.collect()
    assert group() is None
