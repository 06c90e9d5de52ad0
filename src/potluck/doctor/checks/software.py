"""Checks that PyTorch, CUDA and the GPUs of one machine fit together."""

from collections import Counter
from pathlib import Path

from potluck.core.nccl_variables import nccl_defaults
from potluck.core.words import counted
from potluck.doctor.check import MachineCheck, Verdict, fail, ok, unknown, warn
from potluck.doctor.examination import IntendedRun, training_interface
from potluck.doctor.finding import bash, by_hand
from potluck.machine.facts import Facts

INSTALL_TORCH = "python -m pip install torch"
_NOT_ON_WINDOWS = "Windows itself needs none: training runs inside WSL2"
_DRIVER_ON_WINDOWS = (
    "install NVIDIA's driver on Windows (https://www.nvidia.com/drivers), none inside WSL; then in PowerShell: "
    "wsl --update; wsl --shutdown"
)
_BLACKWELL, _PASCAL = (10, 0), (6, 9)


def torch_there(facts: Facts, plan: IntendedRun) -> Verdict:
    """torch must be installed."""
    if facts.system.family == "windows":
        return ok(_NOT_ON_WINDOWS)
    if facts.software.torch is not None:
        return ok(f"torch {facts.software.torch.version} is installed")
    return fail(f"torch is not installed on {facts.machine}", bash(facts, INSTALL_TORCH))


def torch_works(facts: Facts, plan: IntendedRun) -> Verdict:
    """torch must not only be installed but import; a process of its own has tried that."""
    torch = facts.software.torch
    if torch is None or not torch.error:
        return ok("torch imports" if torch else "torch is not installed")
    return fail(
        f"torch {torch.version} on {facts.machine} does not import: {torch.error}",
        bash(facts, f"python -m pip install --force-reinstall torch=={torch.version.partition('+')[0]}"),
    )


def torchft_there(facts: Facts, plan: IntendedRun) -> Verdict:
    """torchft must be installed: Potluck takes the quorum of workers from torchft."""
    if facts.system.family == "windows":
        return ok(_NOT_ON_WINDOWS)
    if facts.software.torchft:
        return ok(f"torchft {facts.software.torchft} is installed")
    return fail(
        f"torchft is not installed on {facts.machine}", bash(facts, "python -m pip install 'torchft>=0.2,<0.3'")
    )


def cuda_seen(facts: Facts, plan: IntendedRun) -> Verdict:
    """torch must see the machine's NVIDIA GPU."""
    torch = facts.software.torch
    has_card = bool(facts.gpus) or "nvidia" in facts.pci_displays or _is_behind_wsl(facts)
    if not has_card and _may_be_behind_wsl(facts) and torch is not None and not torch.num_devices:
        return unknown(
            "Windows was not asked which graphics card it has, and WSL has no NVIDIA driver",
            by_hand(facts.machine, f"if the card is NVIDIA's, {_DRIVER_ON_WINDOWS}"),
        )
    if not has_card or torch is None or torch.error or torch.num_devices:
        return ok(
            f"torch sees {counted(torch.num_devices, 'GPU')}"
            if torch and torch.num_devices
            else "no GPU is left unused"
        )
    if facts.variables.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return warn(f"CUDA_VISIBLE_DEVICES hides the GPU of {facts.machine}", bash(facts, "unset CUDA_VISIBLE_DEVICES"))
    if not facts.gpus:
        note = "install NVIDIA's driver" if facts.wsl is None else _DRIVER_ON_WINDOWS
        missing = "no driver"
        if facts.wsl is not None and facts.wsl.has_cuda_library:
            missing = "its driver does not answer inside WSL"
            note = "in PowerShell: wsl --update; wsl --shutdown; if that changes nothing, update the driver on Windows"
        return warn(f"{facts.machine} has an NVIDIA card, but {missing}", by_hand(facts.machine, note))
    name = facts.gpus[0].name
    if not torch.cuda:
        return warn(
            f"{facts.machine} has a {name}, but torch {torch.version} is a CPU build",
            by_hand(facts.machine, f"install a CUDA build of torch: {which_build(facts.gpus[0].capability)}"),
        )
    return warn(
        f"{facts.machine} has a {name}, but torch for CUDA {torch.cuda} cannot use driver {facts.gpus[0].driver}",
        by_hand(
            facts.machine,
            "update NVIDIA's driver" + (" on Windows; none belongs inside WSL" if facts.wsl is not None else ""),
        ),
    )


def _is_behind_wsl(facts: Facts) -> bool:
    """Whether this is WSL on a Windows that has an NVIDIA card: on WSL's own bus every card is Microsoft's."""
    return facts.wsl is not None and facts.windows is not None and "nvidia" in facts.windows.displays


def _may_be_behind_wsl(facts: Facts) -> bool:
    return facts.wsl is not None and facts.windows is None and facts.wsl.has_cuda_library is False


def nccl_there(facts: Facts, plan: IntendedRun) -> Verdict:
    """Without NCCL, GPUs exchange gradients through Gloo."""
    torch = facts.software.torch
    if torch is None or not torch.num_devices or torch.nccl:
        in_force = f"NCCL {torch.nccl}; variables: {_nccl_variables(facts, plan)}" if torch and torch.nccl else ""
        return ok(in_force or "no NCCL is needed")
    return warn(
        f"torch on {facts.machine} has no NCCL: Gloo is used",
        by_hand(facts.machine, "leave --backend out; for NCCL install a CUDA build of torch on Linux or in WSL2"),
    )


def _nccl_variables(facts: Facts, plan: IntendedRun) -> str:
    """NCCL's variables that a worker here would have, and who sets each."""
    yours = {name: value for name, value in facts.variables.items() if name.startswith("NCCL_")}
    interface = training_interface(facts, plan)
    ours = nccl_defaults(
        {**facts.nccl_files, **yours},
        interface="" if interface is None else interface.name,
        has_infiniband=bool(facts.infiniband),
        debug_file=Path("a file in the run's logs"),
    )
    told = [f"{name}={value} (set by Potluck)" for name, value in ours.items()]
    told += [f"{name}={value} (yours)" for name, value in yours.items()]
    told += [f"{name}={value} (in NCCL's file)" for name, value in facts.nccl_files.items() if name not in yours]
    return ", ".join(told) or "none"


def kernels_fit(facts: Facts, plan: IntendedRun) -> Verdict:
    """A build of torch has kernels for some generations of GPUs only; they must include this machine's."""
    torch = facts.software.torch
    if torch is None or not torch.architectures:
        return ok("no build for particular cards")
    capabilities = torch.capabilities or tuple(gpu.capability for gpu in facts.gpus)
    unfit = [one for one in capabilities if one and not has_kernels(one, torch.architectures)]
    if not unfit:
        return ok("torch has code for every card")
    names = [gpu.name for gpu in facts.gpus if gpu.capability in unfit]
    card = f"{names[0] if names else 'its card'} (sm_{unfit[0].replace('.', '')})"
    return fail(
        f"torch {torch.version} on {facts.machine} has no code for {card}",
        by_hand(facts.machine, f"{which_build(unfit[0])}; machines with other builds join through Gloo"),
        why="it fails with 'no kernel image is available' at the first step",
    )


def one_worker_a_device(facts: Facts, plan: IntendedRun) -> Verdict:
    """CUDA_VISIBLE_DEVICES must name each GPU once: two workers on one GPU share its memory, and NCCL refuses them."""
    listed = [one.strip() for one in facts.variables.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    twice = [one for one, number in Counter(listed).items() if number > 1]
    if twice:
        kept = ",".join(dict.fromkeys(listed))
        fix = bash(facts, f"export CUDA_VISIBLE_DEVICES={kept}", note="in the shell that starts training")
        return fail(f"CUDA_VISIBLE_DEVICES on {facts.machine} names GPU {twice[0]} twice", fix)
    beyond = [one for one in listed if one.isdigit() and facts.gpus and int(one) >= len(facts.gpus)]
    if beyond:
        return fail(
            f"CUDA_VISIBLE_DEVICES on {facts.machine} names GPU {beyond[0]}; there are {len(facts.gpus)}",
            bash(facts, "unset CUDA_VISIBLE_DEVICES", note="in the shell that starts training"),
        )
    return ok("no GPU is named twice")


def has_kernels(capability: str, architectures: tuple[str, ...]) -> bool:
    """Whether a build runs on a GPU: it has code for the same major and no higher minor version, or PTX no newer."""
    major, minor = (int(part) for part in capability.split("."))
    for architecture in architectures:
        kind, _, number = architecture.partition("_")
        digits = "".join(c for c in number if c.isdigit())
        theirs = (int(digits[:-1]), int(digits[-1]))
        if kind == "sm" and theirs[0] == major and theirs[1] <= minor:
            return True
        if kind == "compute" and theirs <= (major, minor):
            return True
    return False


def which_build(capability: str) -> str:
    """The build of torch that a GPU of this compute capability needs, in words."""
    generation = tuple(int(part) for part in capability.split(".")) if capability else (0, 0)
    if generation >= _BLACKWELL:
        return "a card of this generation needs a build for CUDA 12.8 or newer"
    if (5, 0) <= generation <= _PASCAL:
        return "a card of this generation needs a build for CUDA 12.6; newer builds left it out"
    return "choose a build for CUDA 12.6 or newer"


SOFTWARE = (
    MachineCheck("torch-missing", "torch is not installed", torch_there),
    MachineCheck("torch-broken", "torch does not import", torch_works),
    MachineCheck("torchft-missing", "torchft is not installed", torchft_there),
    MachineCheck("cuda-missing", "a GPU that torch does not see", cuda_seen),
    MachineCheck("no-nccl", "GPUs without NCCL", nccl_there),
    MachineCheck("arch-mismatch", "torch has no code for the card", kernels_fit),
    MachineCheck("duplicate-gpu", "a GPU is named twice, or is not there", one_worker_a_device),
)
