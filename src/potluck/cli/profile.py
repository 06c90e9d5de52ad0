"""potluck profile: measure this machine for a model, or all that have joined."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from potluck.cli.saying import say, warn

if TYPE_CHECKING:
    from potluck.meeting.client.measuring import ClusterMeasurement


def profile(
    model: Annotated[str, typer.Option(help="simple_cnn, resnet18, resnet50, bert or gpt2.")] = "simple_cnn",
    model_size: Annotated[
        str | None, typer.Option(help="The model's size: tiny, small, base.", show_default=False)
    ] = None,
    mixed_precision: Annotated[str, typer.Option(help="no, fp16 or bf16.")] = "no",
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1; a GPU by default if there is one.", show_default=False)
    ] = None,
    global_batch: Annotated[int, typer.Option(help="The largest batch to try.", min=1)] = 64,
    seconds: Annotated[float, typer.Option(help="How long to measure, about.", min=0.1, max=120.0)] = 5.0,
    memory_limit: Annotated[
        str | None, typer.Option(help="What training may use on the CPU, like 2G.", show_default=False)
    ] = None,
    tuning: Annotated[
        bool,
        typer.Option("--tuning/--no-tuning", help="First find each machine's fastest way to do the same maths."),
    ] = True,
    compiles: Annotated[
        bool, typer.Option("--compile", help="Try torch.compile, too, which may take two minutes the first time.")
    ] = False,
    solo: Annotated[
        bool, typer.Option("--solo", help="Measure this machine alone; leave joined machines out.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON: of one machine its profile, which serves `potluck plan` elsewhere."),
    ] = False,
) -> None:
    """Measure real training steps of a model at several batch sizes, on this machine or on all that have joined.

    Between joined machines the links are measured, too. The results are kept for plans and runs.
    """
    from potluck.cli.placing import joined_host
    from potluck.core.environment import read_environment
    from potluck.core.errors import SettingsError
    from potluck.core.quantities import size_bytes
    from potluck.core.settings import make_settings

    if compiles and not tuning:
        raise SettingsError("--compile is a way to tune, and --no-tuning forbids all", fix="leave one of them out")
    limit = None if memory_limit is None else size_bytes(memory_limit)
    make_settings({"model": model, "mixed_precision": mixed_precision})
    environment = read_environment()
    if not solo:
        membership = joined_host(environment.home)
        if membership is not None:
            from potluck.measuring.profile_store import save_profile
            from potluck.meeting.client.measuring import Wanted, measure_joined
            from potluck.workloads.models import find_model

            wanted = Wanted(
                model=model,
                model_size=model_size or find_model(model).default_size,
                mixed_precision=mixed_precision,
                device=device,
                global_batch=global_batch,
                seconds=seconds,
                memory_limit=memory_limit,
                tuning=tuning,
                compiles=compiles,
            )
            measured = measure_joined(membership, wanted, warn)
            for one in measured.profiles:  # kept here for plans that are made while other machines are away
                save_profile(environment.home, one)
            _show_all(measured, global_batch, as_json=as_json)
            return
    from potluck.core.environment import read_threads
    from potluck.engine.compute.device import choose_device, use_threads
    from potluck.measuring.profile_store import profile_file
    from potluck.workloads.models import find_model
    from potluck.workloads.profiling import measure_and_keep

    if compiles:
        from potluck.core.environment import keep_compiled_code

        keep_compiled_code(environment.home)
    chosen = choose_device(device)
    use_threads(read_threads())
    size = model_size or find_model(model).default_size
    warn(f"measuring {model}-{size} on {chosen}: first what fits into its memory, then for about {seconds:g} s")
    stored = measure_and_keep(
        environment.home,
        environment.machine,
        model=model,
        size=size,
        precision=mixed_precision,
        device=chosen,
        largest=global_batch,
        budget_s=seconds,
        memory_limit=limit,
        is_tuning=tuning,
        compiles=compiles,
    )
    if as_json:
        print(stored.model_dump_json())
        return
    from potluck.cli.plan_tables import show_profile
    from potluck.cli.terminal import Console

    path = profile_file(environment.home, stored.machine, stored.device, stored.model, stored.precision)
    show_profile(Console(), stored, global_batch, path)


def _show_all(measured: "ClusterMeasurement", global_batch: int, *, as_json: bool) -> None:
    """Print the measurements of all machines; exit with 1 if a machine could not be measured."""
    if as_json:
        import json

        import msgspec

        document: dict[str, Any] = {
            "profiles": [one.model_dump(mode="json") for one in measured.profiles],
            "links": None if measured.links is None else msgspec.to_builtins(measured.links),
            "failed": measured.failed,
        }
        print(json.dumps(document))
    else:
        from potluck.cli.plan_tables import show_profiles
        from potluck.cli.terminal import Console

        show_profiles(Console(), measured.profiles, measured.links, global_batch)
        for machine, why in measured.failed.items():
            say(f"{machine} was not measured: {why}")
    if measured.failed:
        raise typer.Exit(1)
