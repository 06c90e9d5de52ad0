"""The machines that `potluck plan` and `potluck simulate` ask about: measured ones, with some more or without some."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.saying import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from potluck.measuring.profile_store import StoredProfile

_ADD_HELP = (
    'A machine that nobody has measured: "RTX 3060,wifi", "8-core laptop,100mbit", "0.6 of rosa,1gbit", or several: '
    '"20x 8-core laptop,1gbit"; may be repeated.'
)
# Arguments and options that both commands have.
Profiles = Annotated[
    list[Path] | None,
    typer.Argument(help="Profiles of other machines, from `potluck profile --json`.", show_default=False),
]
Model = Annotated[str, typer.Option(help="simple_cnn, resnet18, resnet50, bert or gpt2.")]
ModelSize = Annotated[str | None, typer.Option(help="The model's size: tiny, small, base.", show_default=False)]
Precision = Annotated[str, typer.Option(help="no, fp16 or bf16.")]
GlobalBatch = Annotated[int, typer.Option(help="Samples a step, over all workers.", min=1)]
Policy = Annotated[str, typer.Option("--load-balance-policy", help="static, proportional or dynamic.")]
Keep = Annotated[
    list[str] | None,
    typer.Option(help="Machines that are never benched: rosa,lily; may be repeated.", show_default=False),
]
Add = Annotated[list[str] | None, typer.Option(help=_ADD_HELP, show_default=False)]
Without = Annotated[
    list[str] | None,
    typer.Option(help="Machines to leave out: rosa,lily; may be repeated.", show_default=False),
]
Exchange = Annotated[str, typer.Option(help="How gradients travel: exact, fp16, int8, int4, rounds, islands or auto.")]
Solo = Annotated[
    bool, typer.Option("--solo", help="Use only profiles on this machine and in files; leave joined machines out.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


def measured_profiles(files: Sequence[Path] | None, name: str, precision: str, *, solo: bool) -> "list[StoredProfile]":
    """The profiles of this model: from files, of joined machines, or of this machine."""
    from potluck.core.environment import read_environment
    from potluck.measuring.sources import gather_profiles

    home = read_environment().home
    return gather_profiles(
        home, files or [], name, precision, joined=None if solo else _ask_joined(home, name, precision)
    )


def _ask_joined(home: Path, model: str, precision: str) -> "dict[str, list[StoredProfile]] | None":
    """The joined machines' profiles of this model, by machine; None if this machine has joined no host."""
    from potluck.cli.placing import joined_host

    membership = joined_host(home)
    if membership is None:
        return None
    from potluck.meeting.client.measuring import profiles_of_joined

    told = profiles_of_joined(membership, model, precision, warn)
    _print_indirect_links(home, warn)
    unknown = [machine for machine, profiles in told.items() if not profiles]
    if unknown and len(unknown) < len(told):
        stem, _, size = model.rpartition("-")
        warn(
            f"{', '.join(unknown)} never measured {model}: this plan is without; "
            f"measure all with: potluck profile --model {stem} --model-size {size}"
        )
    return told


def _print_indirect_links(home: Path, tell: "Callable[[str], None]") -> None:
    """Print links that are down or relayed through the host, with fixes: a relay slows the links that were measured."""
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home
    from potluck.meeting.host.pairs import link_lines

    with ClusterClient(Home(home)) as cluster:
        for line in link_lines(cluster.status(), with_direct=False):
            tell(line)
