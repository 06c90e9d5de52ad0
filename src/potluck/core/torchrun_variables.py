"""The environment variables by which a script that is made for torchrun finds its place among the workers."""

from collections.abc import Sequence


def plain_devices(devices: Sequence[str]) -> list[str]:
    """The devices that get a process of such a script: a machine's accelerators, or what it has if it has none.

    The script takes cuda:LOCAL_RANK wherever there is a card, so a process for the CPU beside cards has no device.
    """
    return [device for device in devices if device != "cpu"] or list(devices)


def visible_cards(devices: Sequence[str], visible: str | None) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES for these devices, so that cuda:LOCAL_RANK is a process's own; empty: on the CPU.

    `visible`: the variable as it is now, which numbers the cards; None if it is not set. ROCm reads it too. For other
    accelerators nothing is set, and the script chooses.
    """
    if any(device.partition(":")[0] not in ("cpu", "cuda") for device in devices):
        return {}
    numbers = [int(device.partition(":")[2] or 0) for device in dict.fromkeys(devices) if device != "cpu"]
    cards = visible.split(",") if visible else []
    return {"CUDA_VISIBLE_DEVICES": ",".join(cards[one] if one < len(cards) else str(one) for one in numbers)}


def without_cards(device: str, devices: Sequence[str]) -> dict[str, str]:
    """Hides CUDA's cards from a worker on the CPU beside workers on cards: torchft would take memory of the first."""
    return {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" and set(devices) != {"cpu"} else {}


def torchrun_variables(
    *,
    run: str,
    master: tuple[str, int],
    rank: int,
    world_size: int,
    local_rank: int,
    local_world_size: int,
    node_rank: int = 0,
    num_nodes: int = 1,
) -> dict[str, str]:
    """The variables of one worker, as torchrun sets them.

    TORCHELASTIC_USE_AGENT_STORE: the store at MASTER_ADDR and MASTER_PORT is already served, so rank 0 opens none.
    """
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_world_size),
        "NODE_RANK": str(node_rank),
        "GROUP_RANK": str(node_rank),
        "GROUP_WORLD_SIZE": str(num_nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
