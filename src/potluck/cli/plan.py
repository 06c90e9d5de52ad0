"""potluck plan: the shares and the speed that a run would have."""

from dataclasses import replace
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from potluck.measuring.profile_store import StoredProfile
    from potluck.planning.outlook import Outlook


def plan(
    profiles: Profiles = None,
    model: Model = "simple_cnn",
    model_size: ModelSize = None,
    mixed_precision: Precision = "no",
    global_batch: GlobalBatch = 64,
    policy: Policy = "dynamic",
    keep: Keep = None,
    link: Annotated[
        list[str] | None,
        typer.Option(
            help="A machine's link, like rosa=100mbit or rosa=100mbit,2ms; may be repeated.", show_default=False
        ),
    ] = None,
    add: Add = None,
    without: Without = None,
    exchange: Exchange = "exact",
    solo: Solo = False,
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
    as_json: AsJson = False,
) -> None:
    """Say what a run would do: shares, samples/s with each machine added, who is benched, what a cable would bring, and
    what each --exchange would. Ask what another machine would bring with --add, or one less with --without.
    """
    from potluck.core.exchange_options import check_exchange_options
    from potluck.core.machine_names import split_names
    from potluck.core.quantities import rate_bytes_per_s
    from potluck.measuring.imagined import with_wishes
    from potluck.measuring.sources import differences, make_cluster, read_links
    from potluck.planning.backend_choice import explain_backend
    from potluck.planning.codes import CODES
    from potluck.planning.exchanges import RunTerms, with_code
    from potluck.planning.outlook import look_ahead
    from potluck.workloads.models import find_model

    check_exchange_options({"exchange": exchange}, lambda _: "--exchange")
    name = f"{model}-{model_size or find_model(model).default_size}"
    measured = measured_profiles(profiles, name, mixed_precision, solo=solo)
    found = with_wishes(measured, add or [], split_names(without or []), batch=global_batch)
    cluster = make_cluster(found, read_links(link or [], [one.machine for one in found]), measured=measured)
    kept = split_names(keep or [])
    outlook = look_ahead(
        with_code(cluster, exchange) if exchange in CODES else cluster,
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
    unlike = differences(measured, exchange)
    outlook = replace(outlook, exchange=exchange, lines=[*outlook.lines, *explain_backend(in_ring), *unlike])
    if add or without:
        outlook = _compared(outlook, measured, found, split_names(without or []), exchange, link or [], kept)
    if as_json:
        import json

        print(json.dumps(outlook.as_data()))
        return
    from potluck.cli.plan_tables import show_outlook
    from potluck.cli.terminal import Console

    show_outlook(Console(), outlook, cable)


def _compared(
    outlook: "Outlook",
    measured: "Sequence[StoredProfile]",
    found: "Sequence[StoredProfile]",
    left_out: "Sequence[str]",
    exchange: str,
    links: "Sequence[str]",
    kept: "Sequence[str]",
) -> "Outlook":
    """The outlook, with a first line that says what the machines of --add and --without change."""
    from potluck.measuring.sources import make_cluster, read_links
    from potluck.planning.bench_rule import plan_run
    from potluck.planning.codes import CODES
    from potluck.planning.exchanges import with_code
    from potluck.planning.what_if import compare_with

    here = [profile.machine for profile in measured]
    cluster = make_cluster(measured, read_links([one for one in links if one.partition("=")[0] in here], here))
    before = plan_run(
        with_code(cluster, exchange) if exchange in CODES else cluster,
        outlook.plan.prediction.samples,
        outlook.plan.policy,
        {*kept} & {*here},  # else a machine that is kept in one plan would be benched in the other
        num_steps=outlook.num_steps,
    )
    added = sorted({profile.machine for profile in found} - ({*here} - {*left_out}))
    line = compare_with(before, outlook.plan, added, sorted(left_out), exchange)
    return replace(outlook, before=before, lines=[line, *outlook.lines])
