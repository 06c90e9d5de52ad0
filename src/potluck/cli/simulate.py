"""potluck simulate: a whole run on paper, with the real planner."""

from typing import TYPE_CHECKING, Annotated

import typer

from potluck.cli.imagining import (
    Add,
    AsJson,
    Exchange,
    GlobalBatch,
    Keep,
    Model,
    ModelSize,
    Policy,
    Precision,
    Profiles,
    Solo,
    Without,
    measured_profiles,
)
from potluck.cli.saying import warn

if TYPE_CHECKING:
    from potluck.simulate.figures import Figures

_MOST_NAMED = 8


def simulate(
    profiles: Profiles = None,
    experiment_name: Annotated[
        str | None, typer.Option(help="Name of the run's folder; simulated-1 and so on by default.", show_default=False)
    ] = None,
    model: Model = "simple_cnn",
    model_size: ModelSize = None,
    mixed_precision: Precision = "no",
    global_batch: GlobalBatch = 64,
    steps: Annotated[int, typer.Option(help="How many steps the run has.", min=1)] = 300,
    policy: Policy = "dynamic",
    keep: Keep = None,
    add: Add = None,
    without: Without = None,
    link: Annotated[
        list[str] | None,
        typer.Option(help="A machine's link, like rosa=100mbit,2ms; may be repeated.", show_default=False),
    ] = None,
    exchange: Exchange = "exact",
    topology: Annotated[str, typer.Option(help="The way of exact and fp16 sums: ring, or tree.")] = "ring",
    switch: Annotated[
        str | None,
        typer.Option(help="What all machines together can send: 10gbit; or the air of a WLAN.", show_default=False),
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(help="Machines elsewhere: far=fern,moss; may be repeated.", show_default=False),
    ] = None,
    uplink: Annotated[
        str | None, typer.Option(help="What a site's machines together can send to other sites.", show_default=False)
    ] = None,
    packet_loss: Annotated[float, typer.Option(help="The part of packets that is lost.", min=0.0, max=0.5)] = 0.0,
    spread: Annotated[
        float, typer.Option(help="How much steps vary on machines where nobody measured it.", min=0.0, max=1.0)
    ] = 0.05,
    slow: Annotated[
        list[str] | None,
        typer.Option(help="A slow-down in some steps: rosa=0.33@60-120; may be repeated.", show_default=False),
    ] = None,
    lose: Annotated[
        list[str] | None,
        typer.Option(help="A lost machine: lily@180, or lily@180+30s; may be repeated.", show_default=False),
    ] = None,
    pauses: Annotated[float, typer.Option(help="Pauses of 1 s, for each machine and hour.", min=0.0, max=1e6)] = 0.0,
    losses: Annotated[
        float, typer.Option(help="Losses, for each machine and hour; back after a minute.", min=0.0, max=1e6)
    ] = 0.0,
    host: Annotated[str, typer.Option(help="The machine that is also the host.", show_default=False)] = "",
    cold: Annotated[bool, typer.Option("--cold", help="Workers begin without profiles, as in a first run.")] = False,
    seed: Annotated[int, typer.Option(help="Of everything random.", min=0)] = 0,
    solo: Solo = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a run with the real planner: machines and links come from profiles, time is virtual, nothing is trained.

    The run's folder is like that of a real one: see it with potluck report, compare and dashboard.
    """
    from potluck.core.environment import read_environment
    from potluck.core.exchange_options import check_exchange_options
    from potluck.core.machine_names import split_names
    from potluck.core.quantities import rate_bytes_per_s
    from potluck.core.run_folder import free_run_name
    from potluck.measuring.imagined import with_wishes
    from potluck.measuring.sources import make_cluster, read_links
    from potluck.simulate.building import HOST_LOAD, check_topology, kinds_of, with_usual_spread
    from potluck.simulate.reading import read_losses, read_sites, read_slow_downs
    from potluck.simulate.recording import record
    from potluck.simulate.scenario import Chances, Scenario, WantedRun, Wires
    from potluck.workloads.models import find_model

    check_exchange_options({"exchange": exchange}, lambda _: "--exchange")
    name = f"{model}-{model_size or find_model(model).default_size}"
    measured = measured_profiles(profiles, name, mixed_precision, solo=solo)
    found = with_wishes(measured, add or [], split_names(without or []), batch=global_batch)
    cluster = make_cluster(found, read_links(link or [], [one.machine for one in found]), measured=measured)
    unknown = [name for name in cluster.machines if name not in cluster.links]
    if unknown and len(cluster.machines) > 1:
        warn(
            f"nobody measured the link of {', '.join(unknown[:_MOST_NAMED])}: its exchange counts as free; measure the "
            "links with potluck profile, or name one: --link NAME=100mbit"
        )
    scenario = Scenario(
        cluster=with_usual_spread(cluster, spread),
        wanted=WantedRun(
            batch=global_batch,
            num_steps=steps,
            policy=policy,
            keep=tuple(split_names(keep or [])),
            exchange=exchange,
            is_cold=cold,
        ),
        wires=Wires(
            topology=check_topology(topology),
            shared_bytes_per_s=rate_bytes_per_s(switch) if switch else None,
            sites=read_sites(site or []),
            uplink_bytes_per_s=rate_bytes_per_s(uplink) if uplink else None,
            packet_loss=packet_loss,
        ),
        chances=Chances(pauses_per_h=pauses, losses_per_h=losses),
        slow_downs=read_slow_downs(slow or []),
        losses=read_losses(lose or []),
        kinds=kinds_of(found),
        host=host,
        host_load_per_machine=HOST_LOAD,
        seed=seed,
    )
    runs_dir = read_environment().runs_dir
    settings = {
        "model": model,
        "model_size": model_size or find_model(model).default_size,
        "global_batch": global_batch,
        "exchange": exchange,
        "topology": topology,
        "machines": len(cluster.machines),
        "seed": seed,
    }
    run_name = experiment_name or free_run_name(runs_dir, "simulated")
    folder, figures = record(scenario, runs_dir, run_name, settings)
    if as_json:
        import json

        print(json.dumps({"run": run_name, "folder": str(folder.path), **figures.as_data()}))
        return
    _show(figures, len(cluster.machines), run_name)


def _show(figures: "Figures", num_machines: int, name: str) -> None:
    from rich.text import Text

    from potluck.cli.terminal import Console
    from potluck.planning.explain import time_text

    console = Console()
    for line in (
        f"simulated: {figures.num_steps:,} steps on {num_machines:,} machines take {time_text(figures.seconds)}: "
        f"{figures.samples_per_s:,.1f} samples/s, {100 * figures.efficiency:.0f} % of what the machines do alone",
        figures.where_it_goes(),
        f"see it with: potluck report {name}",
    ):
        console.print(Text(line), soft_wrap=True)
