"""What a model is, for those who compare: a digest of its parameters' shapes, and what its gradients weigh."""

import hashlib

from torch import nn


def fingerprint(model: nn.Module) -> str:
    """A digest of what must be equal for gradients to be added up."""
    shapes = [(name, tuple(p.shape), str(p.dtype), p.requires_grad) for name, p in model.named_parameters()]
    return hashlib.sha256(repr(shapes).encode()).hexdigest()[:16]


def gradient_bytes(model: nn.Module) -> int:
    """What every step exchanges."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
