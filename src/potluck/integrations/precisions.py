"""Lightning's words for precisions, and the run's."""

from potluck.core.errors import UsageError

_PRECISIONS = {"32-true": "no", "bf16-mixed": "bf16", "16-mixed": "fp16"}


def as_mixed_precision(precision: str) -> str:
    """The run's word for a precision; UsageError for one that a run does not have."""
    if precision not in _PRECISIONS:
        raise UsageError(f"precision={precision!r} is not known to Potluck", fix=f"use one of {', '.join(_PRECISIONS)}")
    return _PRECISIONS[precision]
