"""potluck profile: measure this machine for a model."""

from typing import Annotated

import typer


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
    seconds: Annotated[float, typer.Option(help="How long to measure, about.", min=0.1)] = 5.0,
    memory_limit: Annotated[
        str | None, typer.Option(help="What training may use on the CPU, like 2G.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the profile as JSON: a file of it serves `potluck plan` elsewhere.")
    ] = False,
) -> None:
    """Measure this machine: real training steps of a model at several batch sizes. The result is kept for plans."""
    from potluck.core.environment import read_environment
    from potluck.core.quantities import size_bytes
    from potluck.core.settings import make_settings

    limit = None if memory_limit is None else size_bytes(memory_limit)
    make_settings({"model": model, "mixed_precision": mixed_precision})
    from potluck.engine.device import choose_device
    from potluck.measuring.profile_store import profile_file
    from potluck.workloads.models import find_model
    from potluck.workloads.profiling import measure_and_keep

    environment, chosen = read_environment(), choose_device(device)
    size = model_size or find_model(model).default_size
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
    )
    if as_json:
        print(stored.model_dump_json())
        return
    from rich.console import Console

    from potluck.cli.plan_tables import show_profile

    path = profile_file(environment.home, stored.machine, stored.device, stored.model, stored.precision)
    show_profile(Console(), stored, global_batch, path)
