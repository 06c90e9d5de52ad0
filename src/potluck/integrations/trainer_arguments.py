"""The settings of a Hugging Face Trainer, in the terms of `potluck.start`."""

from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import SaveStrategy

from potluck.core.errors import UsageError


def start_options(args: TrainingArguments) -> dict[str, Any]:
    """The Trainer's settings as those of `potluck.start`."""
    in_steps = args.save_strategy == SaveStrategy.STEPS and args.save_steps >= 1
    return {
        "seed": args.seed,
        "micro_batch": args.per_device_train_batch_size,
        "mixed_precision": args.mixed_precision,
        "checkpoint_every": int(args.save_steps) if in_steps else None,
        "device": "cpu" if args.use_cpu else None,
    }


def check_arguments(args: TrainingArguments) -> None:
    """Refuse settings that would be ignored, or would train otherwise than on one machine."""
    if args.world_size > 1:
        raise UsageError(
            "TrainingArguments was made before potluck.integrations.transformers was imported, and has let Accelerate "
            "connect the workers",
            fix="import it at the top of the script",
        )
    for name, is_set, fix in (
        ("deepspeed", args.deepspeed, "leave it out: every machine has the whole model"),
        ("fsdp", args.fsdp, "leave it out: every machine has the whole model"),
        ("torch_compile", args.torch_compile, "leave it out, and run: potluck profile --compile"),
        (
            "auto_find_batch_size",
            args.auto_find_batch_size,
            "leave it out, and set a per_device_train_batch_size that fits everywhere",
        ),
    ):
        if is_set:
            raise UsageError(f"TrainingArguments has {name}, which a Trainer on Potluck cannot use", fix=fix)
