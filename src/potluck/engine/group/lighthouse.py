"""Starts torchft's lighthouse within milliseconds: without a lighthouse, workers that train together commit no step."""

import importlib.util
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchft.coordination import LighthouseServer

_HEARTBEAT_TIMEOUT_MS = 1000
# How long a quorum waits for members that send heartbeats but have not asked: longer than LEASE_S, than a step over
# slow links and than most rounds. Machines that join while the others are in a round would form a group without them.
_JOIN_TIMEOUT_MS = 120_000
_QUORUM_TICK_MS = 20
_NATIVE = "torchft._torchft"


def start_lighthouse(bind: str, *, heartbeat_timeout_ms: int = _HEARTBEAT_TIMEOUT_MS) -> "LighthouseServer":
    """Start the lighthouse of one run, in this process; a member without a heartbeat for so long is lost."""
    server: LighthouseServer = _native_part().LighthouseServer(
        bind=bind,
        min_replicas=1,
        join_timeout_ms=_JOIN_TIMEOUT_MS,
        quorum_tick_ms=_QUORUM_TICK_MS,
        heartbeat_timeout_ms=heartbeat_timeout_ms,
    )
    return server


def _native_part() -> Any:
    """torchft's compiled module. Importing it by name would import torch first, which takes seconds."""
    if _NATIVE in sys.modules:
        return sys.modules[_NATIVE]
    package = importlib.util.find_spec("torchft")
    spec = package and PathFinder.find_spec(_NATIVE, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return importlib.import_module(_NATIVE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
