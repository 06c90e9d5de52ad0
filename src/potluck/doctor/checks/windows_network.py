"""Checks of what else on Windows gets between machines: antivirus programs, power saving, forgotten forwarded ports."""

from potluck.core.environment import DEFAULT_PORT
from potluck.doctor.check import MachineCheck, Verdict, ok, warn
from potluck.doctor.checks.windows import mode_behind
from potluck.doctor.examination import IntendedRun
from potluck.doctor.finding import by_hand, powershell, powershell_quoted
from potluck.machine.adapters import is_real
from potluck.machine.facts import Facts, ForwardedPort

# Potluck's own ports, and those that guides to PyTorch inside WSL forward.
_TRAINING_PORTS = frozenset([*range(DEFAULT_PORT, DEFAULT_PORT + 10), *range(29400, 29411)])


def guarded(facts: Facts, plan: IntendedRun) -> Verdict:
    """An antivirus program may have a firewall of its own, which no rule of the Windows firewall opens."""
    guards = facts.windows.guards if facts.windows else ()
    if not guards:
        return ok("no other maker's firewall is known to guard this machine")
    names = " and ".join(guards)
    if not plan.is_host:
        return ok(f"{names} guards this Windows: a machine that joins dials out, which it lets through as a rule")
    return warn(
        f"{names} guards the Windows of {facts.machine}: it may keep others out, whatever Windows' firewall says",
        by_hand(
            facts.machine,
            f"in the settings of {names}, under firewall, call your network trusted (private, home) or allow incoming "
            f"TCP at port {DEFAULT_PORT} from it; leave the program on. Or host on another machine: this one can join",
        ),
    )


def sleepy_adapter(facts: Facts, plan: IntendedRun) -> Verdict:
    """Windows may switch a network adapter off to save power, and a run loses the machine."""
    adapters = facts.windows.adapters if facts.windows else ()
    sleepy = [one for one in adapters if one.is_up and one.may_sleep and is_real(one)]
    if not sleepy:
        return ok("Windows keeps its network adapters on, or was not asked")

    def switch(alias: str, value: str) -> str:
        get = f"$a = Get-NetAdapterPowerManagement -Name {powershell_quoted(alias)}"
        return f"{get}; $a.AllowComputerToTurnOffDevice = '{value}'; $a | Set-NetAdapterPowerManagement"

    return warn(
        f"Windows on {facts.machine} may switch {' and '.join(one.alias for one in sleepy)} off to save power",
        powershell(
            facts,
            *(switch(one.alias, "Disabled") for one in sleepy),
            note="the adapter restarts, so connections break once",
            admin=True,
            undo=[switch(one.alias, "Enabled") for one in sleepy],
        ),
        why="a run loses the machine when its adapter goes off; it comes back by itself, seconds later",
    )


def stale_forwarding(facts: Facts, plan: IntendedRun) -> Verdict:
    """A forwarded port outlives the address that it leads to: WSL gets another one with every start."""
    ports = facts.windows.forwarded_ports if facts.windows else ()
    if facts.wsl is None or not ports:
        return ok("Windows forwards no port, or was not asked")
    ours = [one for one in ports if one.listen_port in _TRAINING_PORTS]
    # In mirrored mode Windows and WSL share the ports: any rule takes one away.
    is_behind = mode_behind(facts) is not None
    stale = [one for one in ours if not is_behind or one.connect_address not in (*facts.addresses, "127.0.0.1")]
    if not stale:
        return ok("forwarded ports lead to this WSL")
    where = ", ".join(f"{one.listen_port} to {one.connect_address}" for one in stale)
    reason = f"this WSL has {', '.join(_own(facts))}" if is_behind else "a mirrored WSL needs the port itself"
    return warn(
        f"Windows on {facts.machine} forwards port {where}; {reason}",
        powershell(
            facts,
            *(f"netsh interface portproxy delete v4tov4 {_listening(one)}" for one in stale),
            note="see all rules with: netsh interface portproxy show all",
            admin=True,
            undo=[
                f"netsh interface portproxy add v4tov4 {_listening(one)} "
                f"connectport={one.connect_port} connectaddress={one.connect_address}"
                for one in stale
            ],
        ),
        why="other machines that dial the port reach nobody",
    )


def _own(facts: Facts) -> list[str]:
    return [address for address in facts.addresses if not address.startswith("127.")]


def _listening(port: ForwardedPort) -> str:
    return f"listenport={port.listen_port} listenaddress={port.listen_address}"


WINDOWS_NETWORK = (
    MachineCheck("antivirus-firewall", "an antivirus program may keep other machines out", guarded),
    MachineCheck("adapter-power-saving", "Windows may switch a network adapter off", sleepy_adapter),
    MachineCheck("portproxy-stale", "Windows forwards a port to an old address", stale_forwarding),
)
