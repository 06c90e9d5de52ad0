"""Train one PyTorch model on all the machines you have.

import potluck

run = potluck.start()
model, optimizer = run.prepare(model, optimizer)
loader = run.loader(train_set, global_batch=256)
for epoch in run.epochs(10):
    for inputs, targets in loader:
        loss = loss_function(model(inputs), targets)
        run.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""

from typing import TYPE_CHECKING, Any

from potluck.core.errors import PotluckError
from potluck.core.version import __version__

if TYPE_CHECKING:
    from potluck.engine.run import Run
    from potluck.engine.start import start
    from potluck.engine.steps.stopping import Stopped
    from potluck.sharing.folders import data_dir

__all__ = ["PotluckError", "Run", "Stopped", "__version__", "data_dir", "start"]

# These names need torch, which takes seconds to import: `__getattr__` imports each one at its first use.
_LAZY = {
    "Run": "potluck.engine.run",
    "Stopped": "potluck.engine.steps.stopping",
    "data_dir": "potluck.sharing.folders",
    "start": "potluck.engine.start",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'potluck' has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
