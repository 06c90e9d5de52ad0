"""What the paths of the host's service need: the coordinator, the bundles, and the machine that asks."""

from typing import Annotated

from fastapi import Depends, Request

from potluck.meeting.host.admission import NotProvenError
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.credentials import CALLER, ONLOOKER
from potluck.meeting.transfer.bundle import BundleCache


async def coordinator_of(request: Request) -> Coordinator:
    """The host's coordinator."""
    coordinator: Coordinator = request.app.state.coordinator
    return coordinator


async def bundles_of(request: Request) -> BundleCache:
    """The bundles that the host keeps."""
    bundles: BundleCache = request.app.state.bundles
    return bundles


async def member(request: Request) -> str:
    """The machine that sent the request, known by its credential; refuses a caller that is no machine."""
    machine: str = request.scope.get(CALLER, ONLOOKER)
    if machine == ONLOOKER:
        raise NotProvenError("this host does not know this machine", fix="join with the line that potluck host prints")
    return machine


async def onlooker(request: Request) -> None:
    """Admit a machine, or a program with the metrics key: to read metrics, no machine's credential is needed."""
    if CALLER not in request.scope:
        raise NotProvenError("this host does not know this program", fix="give it the key in metrics-key")


def address_of(request: Request) -> str:
    """The address that a request comes from."""
    return request.client.host if request.client else ""


Machine = Annotated[str, Depends(member)]
CoordinatorDep = Annotated[Coordinator, Depends(coordinator_of)]
Bundles = Annotated[BundleCache, Depends(bundles_of)]
