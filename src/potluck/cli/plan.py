"""potluck plan: the shares and the speed that a run would have."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.saying import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from potluck.measuring.profile_store import StoredProfile


def plan(
    profiles: Annotated[
        list[Path] | None,
        typer.Argument(help="Profiles of other machines, from `potluck profile --json`.", show_default=False),
    ] = None,
    model: Annotated[str, typer.Option(help="simple_cnn, resnet18, resnet50, bert or gpt2.")] = "simple_cnn",
    model_size: Annotated[
        str | None, typer.Option(help="The model's size: tiny, small, base.", show_default=False)
    ] = None,
    mixed_precision: Annotated[str, typer.Option(help="no, fp16 or bf16.")] = "no",
    global_batch: Annotated[int, typer.Option(help="Samples a step, over all workers.", min=1)] = 64,
    policy: Annotated[str, typer.Option("--load-balance-policy", help="static, proportional or dynamic.")] = "dynamic",
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Machines that are never benched: rosa,lily; may be repeated.", show_default=False),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(
            help="A machine's link, like rosa=100mbit or rosa=100mbit,2ms; may be repeated.", show_default=False
        ),
    ] = None,
    solo: Annotated[
        bool, typer.Option("--solo", help="Use only profiles on this machine and in files; leave joined machines out.")
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(help="How many steps the run has; without it, a long run.", show_default=False, min=1),
    ] = None,
    loss_price: Annotated[
        float, typer.Option(help="Percent of loss that --exchange auto may cost.", min=0.0, max=100.0)
    ] = 0.0,
    round_steps: Annotated[
        int | None,
        typer.Option(help="Steps between two exchanges in rounds; chosen by default.", show_default=False, min=1),
    ] = None,
    warm_up_steps: Annotated[
        int | None,
        typer.Option(help="Steps before the first round; by the length of the run.", show_default=False, min=0),
    ] = None,
    cable: Annotated[str, typer.Option(help="The faster cable to ask about.")] = "1gbit",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Say what a run would do: shares, samples/s with each machine added, who is benched, what a cable would bring, and
    what each --exchange would.
    """
    from potluck.core.environment import read_environment
    from potluck.core.machine_names import split_names
    from potluck.core.quantities import rate_bytes_per_s
    from potluck.measuring.sources import gather_profiles, make_cluster, read_links
    from potluck.planning.backend_choice import explain_backend
    from potluck.planning.exchanges import RunTerms
    from potluck.planning.outlook import look_ahead
    from potluck.workloads.models import find_model

    name = f"{model}-{model_size or find_model(model).default_size}"
    home = read_environment().home
    found = gather_profiles(
        home, profiles or [], name, mixed_precision, joined=None if solo else _ask_joined(home, name, mixed_precision)
    )
    cluster = make_cluster(found, read_links(link or [], [one.machine for one in found]))
    kept = split_names(keep or [])
    outlook = look_ahead(
        cluster,
        global_batch,
        policy,
        kept,
        cable_bytes_per_s=rate_bytes_per_s(cable),
        num_steps=steps,
        terms=RunTerms(
            batch=global_batch,
            num_steps=steps,
            policy=policy,
            keep=kept,
            round_steps=round_steps,
            warm_up_steps=warm_up_steps,
            has_batch_norm=model.startswith("resnet"),
        ),
        loss_price=loss_price,
    )
    in_ring = [(one.machine, one.device) for one in found if one.machine not in outlook.plan.benched]
    outlook = replace(outlook, lines=[*outlook.lines, *explain_backend(in_ring)])
    if as_json:
        import json

        print(json.dumps(outlook.as_data()))
        return
    from potluck.cli.plan_tables import show_outlook
    from potluck.cli.terminal import Console

    show_outlook(Console(), outlook, cable)


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
