"""The environment variables by which a script that is made for torchrun finds its place among the workers."""


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
