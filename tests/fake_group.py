"""A group that does what a test says: the training loop meets spoiled steps and other parts without other workers."""

from potluck.engine.group.solo import SoloGroup
from potluck.engine.order.position import Slice


class FakeGroup(SoloGroup):
    """Alone, with chosen verdicts and parts, and a record of the parts that were handed out.

    `verdicts`: one for each attempt; all further steps are committed. `parts`: of an attempt's batch, which range.
    """

    def __init__(self, verdicts=(), parts=()):
        super().__init__()
        self._verdicts = iter(verdicts)
        self._parts = iter(parts)
        self.begun = []

    def begin(self, step, order):
        whole = super().begin(step, order)
        start, stop = next(self._parts, (whole.start, whole.stop))
        self._part = Slice(step, start, stop)
        self.begun.append(self._part)
        return self._part

    def commit(self):
        return next(self._verdicts, True)
