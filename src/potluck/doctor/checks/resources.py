"""Checks of one machine's resources: shared memory, disk, power and the meeting port."""

import shlex

from potluck.core.words import counted
from potluck.doctor.check import MachineCheck, Verdict, fail, ok, unknown, warn
from potluck.doctor.examination import GIB, IntendedRun
from potluck.doctor.finding import bash, by_hand, export
from potluck.machine.facts import Facts

MIB = 2**20
SHM_LITTLE, SHM_TOO_LITTLE = 512 * MIB, 128 * MIB  # containers get 64 MiB, one data loader wants more


def shared_memory(facts: Facts, plan: IntendedRun) -> Verdict:
    """Data loaders and NCCL pass tensors through /dev/shm, which must be large enough."""
    if facts.shm is None:
        return ok("this system has no /dev/shm") if facts.system.family != "linux" else unknown("/dev/shm is not there")
    if facts.shm.total_bytes >= SHM_LITTLE:
        return ok(f"/dev/shm has {in_bytes(facts.shm.total_bytes)}")
    verdict = fail if facts.shm.total_bytes < SHM_TOO_LITTLE else warn
    if facts.system.container and not facts.system.is_administrator:
        fix = by_hand(
            facts.machine, f"start the container with --ipc=host: {facts.system.container} run --ipc=host ..."
        )
    else:
        fix = bash(
            facts,
            "mount -o remount,size=1G /dev/shm",
            note="until the next start; a container wants --ipc=host instead",
            root=True,
            undo=[f"mount -o remount,size={facts.shm.total_bytes} /dev/shm"],
        )
    return verdict(
        f"/dev/shm of {facts.machine} has {in_bytes(facts.shm.total_bytes)}",
        fix,
        why="data loaders with workers and NCCL die there with 'bus error' or 'shared memory segment'",
    )


def disk(facts: Facts, plan: IntendedRun) -> Verdict:
    """The disk of the run folder must have room for two checkpoints."""
    if not facts.disks:
        return unknown("the room on disk is not known")
    runs, *others = facts.disks
    needed = 2 * plan.checkpoint_bytes  # a new checkpoint is written before the old one is removed
    if runs.is_writable and runs.free_bytes >= needed:
        return ok(f"{in_bytes(runs.free_bytes)} are free for runs")
    roomy = next((one for one in others if one.free_bytes >= needed and one.is_writable), None)
    fixes = [by_hand(facts.machine, f"free {in_bytes(max(needed - runs.free_bytes, 0))} in {runs.folder}")]
    if roomy is not None:
        folder = f"{roomy.folder}/experiments"
        quoted = folder if folder.startswith("~") else shlex.quote(folder)
        fixes.insert(0, bash(facts, f"export POTLUCK_RUNS_DIR={quoted}", note="in the shell that starts training"))
    if not runs.is_writable:
        return fail(f"{facts.machine} may not write to {runs.folder}", *fixes[:1])
    verdict = fail if runs.free_bytes < plan.checkpoint_bytes else warn
    return verdict(
        f"{runs.folder} on {facts.machine} has {in_bytes(runs.free_bytes)} left; two checkpoints of "
        f"{in_bytes(plan.checkpoint_bytes)} must fit",
        *fixes,
    )


def battery(facts: Facts, plan: IntendedRun) -> Verdict:
    """A laptop on battery slows itself down."""
    if facts.power is None or not facts.power.on_battery:
        return ok("not on battery")
    left = f", {facts.power.percent} % left" if facts.power.percent is not None else ""
    return warn(f"{facts.machine} runs on battery{left}", by_hand(facts.machine, "plug in the charger"))


def throttle(facts: Facts, plan: IntendedRun) -> Verdict:
    """Heat or a power cap lowers the clock rates of a GPU or processor."""
    hot = [gpu for gpu in facts.gpus if gpu.throttle]
    if hot:
        return warn(
            f"{hot[0].name} of {facts.machine} is slowed down: {', '.join(hot[0].throttle)}",
            by_hand(facts.machine, "give it air, clean the fan, lift a power limit; Potluck gives it fewer samples"),
        )
    if facts.processor.throttled_events:
        times = counted(facts.processor.throttled_events, "time")
        return warn(
            f"the processor of {facts.machine} was slowed down for heat {times}",
            by_hand(facts.machine, "give it air; Potluck gives it fewer samples"),
        )
    return ok("nothing is slowed down")


def port(facts: Facts, plan: IntendedRun) -> Verdict:
    """The meeting port, on which worker 0 listens, must be free."""
    if not facts.listeners:
        return ok("the meeting port is free")
    taken = facts.listeners[0]
    if plan.host in facts.addresses and plan.host_port == taken.port:
        return ok("potluck host has the meeting port")
    if plan.host and plan.host not in facts.addresses and "RANK" not in facts.variables:
        return ok("this machine has joined a host, and needs no port but its gate's")
    who = taken.process or "another program"
    pid = f" (process {taken.pid})" if taken.pid else ""
    verdict = fail if facts.variables.get("RANK") == "0" else warn
    variables = {"MASTER_PORT": str(taken.port + 1)}
    fixes = [export(facts, **variables)]
    if taken.pid:
        fixes.append(bash(facts, f"kill {taken.pid}", note=f"or end {who}, if it is of no use"))
    return verdict(
        f"port {taken.port} of {facts.machine} is taken by {who}{pid}",
        *fixes,
        why="another port must be the same on every machine",
    )


def in_bytes(number: int) -> str:
    """A number of bytes as text: 5.0 GiB, 64 MiB."""
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / MIB:.0f} MiB"


RESOURCES = (
    MachineCheck("shm-small", "too little shared memory", shared_memory),
    MachineCheck("disk-full", "too little room for checkpoints", disk),
    MachineCheck("battery", "the machine runs on battery", battery),
    MachineCheck("throttle", "heat or a power cap slows the machine", throttle),
    MachineCheck("port-in-use", "the meeting port is taken", port),
)
