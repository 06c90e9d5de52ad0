"""A worker's summary as plain data: the content of logs/rank_<n>_metrics.json."""

from typing import Any

from potluck.events.state import LEAST_S, RunState


def summarise(state: RunState) -> dict[str, Any]:
    """Numbers that other tools read; keys are only ever added."""
    return {
        "run": state.run,
        "rank": state.worker,
        "machine": state.machine,
        "device": state.device,
        "card": state.card,
        "mixed_precision": state.mixed_precision,
        "versions": state.versions,
        "num_parameters": state.num_parameters,
        "global_batch": state.global_batch,
        "state": state.ended or "running",
        "step": state.step,
        "last_step": state.last_step,
        "loss": state.loss,
        "diverged_since": state.diverged_since,
        "samples_per_s": round(state.samples_per_s, 3),
        "training_s": round(state.training_s, 3),
        "predicted_samples_per_s": round(state.predicted_samples_per_s, 3),
        "shares": state.shares,
        "num_plan_changes": state.num_plan_changes,
        "benched": list(state.benched),
        "backend": "" if state.backend is None else state.backend.backend,
        "times_resumed": state.times_resumed,
        "skipped_steps": state.skipped_steps,
        "scores": state.scores,
        "metrics": state.metrics,
        "checkpoint": state.checkpoint,
        "epochs": [
            {
                "epoch": row.epoch + 1,
                "step": row.step,
                "loss": row.loss,
                "samples_per_s": round(row.samples / row.seconds, 3) if row.seconds > LEAST_S else 0.0,
                "seconds": round(row.seconds, 3),
                **row.scores,
            }
            for row in state.epochs
        ],
    }
