"""What a machine's torch could exchange gradients with, as the choice of a backend reads it."""

from potluck.machine.facts import Facts
from potluck.planning.backend_choice import BackendFacts


def backend_facts(facts: Facts) -> BackendFacts:
    """The facts of a worker on the machine's first device."""
    torch = facts.software.torch
    if torch is None or not (torch.devices or torch.num_devices):
        return BackendFacts(machine=facts.machine)
    version = f"{torch.nccl} (RCCL)" if torch.nccl and torch.hip else torch.nccl
    device = torch.devices[0] if torch.devices else "cuda:0"  # older recordings count CUDA devices only
    return BackendFacts(machine=facts.machine, device=device, nccl=version if device.startswith("cuda") else "")
