"""A digest of a model's parameter shapes, to compare models, and the size of its gradients."""

import hashlib

from torch import nn

from potluck.engine.compute.frozen_precision import loaded_dtype


def fingerprint(model: nn.Module) -> str:
    """A digest of names, shapes, types and requires_grad: gradients can be summed only if these are equal.

    Types are those in which the script loaded the parameters: machines may round frozen ones.
    """
    shapes = [(name, tuple(p.shape), str(loaded_dtype(p)), p.requires_grad) for name, p in model.named_parameters()]
    return hashlib.sha256(repr(shapes).encode()).hexdigest()[:16]


def gradient_bytes(model: nn.Module) -> int:
    """The size of the gradients that every step exchanges."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
