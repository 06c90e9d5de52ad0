"""Checks of WSL2: its version, its networking mode, its settings, and the order of the Windows adapters."""

from potluck.core.environment import DEFAULT_PORT
from potluck.doctor.check import MachineCheck, Verdict, fail, ok, warn
from potluck.doctor.examination import IntendedRun, is_within
from potluck.doctor.finding import Fix, by_hand, powershell, powershell_quoted
from potluck.machine.adapters import is_real, main_adapter
from potluck.machine.facts import TUNNEL, Adapter, Facts

MIRRORED_BUILD = 22621  # Windows 11 22H2
RESTART_WSL = "wsl --shutdown"


def write_mirrored_config(*, undo: bool = False) -> str:
    """One line of PowerShell that sets networkingMode=mirrored in .wslconfig, or removes it; other lines stay."""
    file = "(Join-Path $env:USERPROFILE '.wslconfig')"
    others = "Where-Object { $_ -notmatch '^\\s*networkingMode\\s*=' }"
    keep = f"$lines = @(Get-Content {file} -ErrorAction SilentlyContinue | {others})"
    if undo:
        return f"{keep}; $lines | Set-Content {file} -Encoding ascii"
    section = "if ($lines -notcontains '[wsl2]') { $lines += '[wsl2]' }"
    add = "$lines = @($lines | ForEach-Object { $_; if ($_ -eq '[wsl2]') { 'networkingMode=mirrored' } })"
    return f"{keep}; {section}; {add}; $lines | Set-Content {file} -Encoding ascii"


def behind_wsl(facts: Facts) -> tuple[str, Fix] | None:
    """If WSL2 is behind NAT, so that others cannot dial it: its networking mode in words, and the fix; else None."""
    mode = mode_behind(facts)
    if mode is None:
        return None
    where = f"WSL is in {mode} mode"
    build = facts.windows.build if facts.windows else None
    if build is None or build >= MIRRORED_BUILD:
        return where, mirrored_fix(facts)
    address = next((a for a in facts.addresses if not is_within(a, "127.0.0.0/8")), "")
    where_to = f"listenport={DEFAULT_PORT} listenaddress=0.0.0.0"
    return where, powershell(
        facts,
        f"netsh interface portproxy add v4tov4 {where_to} connectport={DEFAULT_PORT} connectaddress={address}",
        f"New-NetFirewallRule -Name 'potluck' -DisplayName 'Potluck' -Direction Inbound -Protocol TCP "
        f"-LocalPort {DEFAULT_PORT} -RemoteAddress LocalSubnet -Action Allow",
        note="anew after every start of WSL, which changes its address; then inside WSL: "
        f"potluck host --advertise {windows_address(facts)}",
        admin=True,
        undo=[
            f"netsh interface portproxy delete v4tov4 {where_to}",
            "Remove-NetFirewallRule -Name 'potluck'",
        ],
    )


def mode_behind(facts: Facts) -> str | None:
    """WSL's networking mode, if it keeps other machines from dialling this one; None outside of WSL, too."""
    if facts.wsl is None:
        return None
    mode = facts.wsl.mode or ("nat" if _looks_like_nat(facts) else None)
    return None if mode == "mirrored" else mode


def vpn_address(facts: Facts) -> str | None:
    """This machine's address on a VPN, at which the other machines of that VPN can dial it, behind NAT or not."""
    tunnels = [one for one in facts.interfaces if one.kind == TUNNEL and one.is_up and one.addresses]
    return tunnels[0].addresses[0].partition("/")[0] if tunnels else None


def windows_address(facts: Facts) -> str:
    """The address of Windows that others dial: that of its preferred adapter, if Windows told it."""
    adapter = main_adapter(facts.windows) if facts.windows else None
    return adapter.addresses[0] if adapter else "ADDRESS (Windows' own: ipconfig in PowerShell)"


def mirrored_fix(facts: Facts) -> Fix:
    """A fix that turns on WSL2's mirrored networking, with its undo."""
    return powershell(
        facts,
        write_mirrored_config(),
        RESTART_WSL,
        note="in PowerShell on Windows; it ends every WSL session",
        undo=[write_mirrored_config(undo=True), RESTART_WSL],
    )


def version(facts: Facts, plan: IntendedRun) -> Verdict:
    """WSL1 has no Linux kernel: no GPU, no addresses of its own, and no loopback network for workers."""
    if facts.wsl is None or facts.wsl.version == 2:
        return ok("not in WSL, or in WSL2")
    name = powershell_quoted(facts.wsl.distribution or "Ubuntu")
    return fail(
        f"{facts.machine} runs in WSL1, which is no Linux kernel: Potluck needs WSL2",
        powershell(
            facts,
            "wsl --list --verbose",
            f"wsl --set-version {name} 2",
            "wsl --set-default-version 2",
            note="it ends this distribution's sessions and takes minutes; files stay. If Windows says that the virtual "
            "machine platform is missing: wsl --install --no-distribution as administrator, then restart",
            undo=[f"wsl --set-version {name} 1"],
        ),
    )


def config_encoding(facts: Facts, plan: IntendedRun) -> Verdict:
    """WSL does not read a .wslconfig with a byte order mark or in UTF-16."""
    if facts.wsl is None or facts.wsl.config_encoding in (None, "ascii"):
        return ok(".wslconfig can be read by WSL, or there is none")
    file = "(Join-Path $env:USERPROFILE '.wslconfig')"
    return warn(
        f".wslconfig of {facts.machine} is {facts.wsl.config_encoding}: WSL does not read it",
        powershell(facts, f"(Get-Content {file}) | Set-Content {file} -Encoding ascii", RESTART_WSL),
    )


def idle(facts: Facts, plan: IntendedRun) -> Verdict:
    """By default, Windows ends WSL soon after its last terminal closes."""
    if facts.wsl is None:
        return ok("not in WSL")
    if facts.wsl.idle_timeout_ms is not None and facts.wsl.idle_timeout_ms < 0:
        return ok("WSL does not end this guest when its terminals close")
    return warn(
        f"Windows ends WSL on {facts.machine} soon after its last terminal closes",
        by_hand(
            facts.machine,
            "leave a WSL window open while training, or put instanceIdleTimeout=-1 under [general] in "
            f"%UserProfile%\\.wslconfig, then in PowerShell: {RESTART_WSL}",
        ),
    )


def adapter_order(facts: Facts, plan: IntendedRun) -> Verdict:
    """A mirrored WSL prefers the Windows adapter with the lowest metric, which should be the cable's."""
    if facts.wsl is None or facts.windows is None:
        return ok("not in WSL, or Windows was not asked")
    live = [a for a in facts.windows.adapters if a.is_up and a.metric is not None and is_real(a)]
    wired = [a for a in live if not a.is_wireless]
    wifi = [a for a in live if a.is_wireless]
    if not wired or not wifi:
        return ok("there is one adapter to choose from")
    cable, radio = min(wired, key=_metric), min(wifi, key=_metric)
    if _metric(cable) < _metric(radio):
        return ok(f"the cable ({cable.alias}) goes before Wi-Fi")
    alias, was = powershell_quoted(cable.alias), _metric(cable)
    return warn(
        f"Windows on {facts.machine} prefers {radio.alias} (metric {radio.metric}) to {cable.alias} (metric {was})",
        powershell(
            facts,
            f"Set-NetIPInterface -InterfaceAlias {alias} -InterfaceMetric 10",
            RESTART_WSL,
            admin=True,
            undo=[f"Set-NetIPInterface -InterfaceAlias {alias} -AutomaticMetric Enabled", RESTART_WSL],
        ),
        why="WSL then shows the Wi-Fi address, and peers on the cable are not reached",
    )


def public_profile(facts: Facts, plan: IntendedRun) -> Verdict:
    """On a network with the profile Public, Windows keeps peers out."""
    if facts.windows is None:
        return ok("not on Windows, or Windows was not asked")
    public = [a for a in facts.windows.adapters if a.is_up and a.profile.lower() == "public" and is_real(a)]
    if not public:
        return ok("no network of Windows is Public")
    names = [powershell_quoted(adapter.alias) for adapter in public]
    return warn(
        f"Windows on {facts.machine} treats {', '.join(a.alias for a in public)} as Public: peers are kept out",
        powershell(
            facts,
            *(f"Set-NetConnectionProfile -InterfaceAlias {name} -NetworkCategory Private" for name in names),
            note="only for a network of your own",
            admin=True,
            undo=[f"Set-NetConnectionProfile -InterfaceAlias {name} -NetworkCategory Public" for name in names],
        ),
    )


def native(facts: Facts, plan: IntendedRun) -> Verdict:
    """Gloo on native Windows cannot talk to Gloo on Linux."""
    if facts.system.family != "windows":
        return ok("not native Windows")
    return fail(
        f"{facts.machine} runs Python on Windows itself: Potluck trains inside WSL2, where torch is Linux's",
        by_hand(facts.machine, "run potluck-setup.bat, which asks before every step: see docs/windows.md"),
        powershell(
            facts,
            "wsl --install -d Ubuntu-24.04",
            "wsl -d Ubuntu-24.04 -u root -e apt-get update",
            "wsl -d Ubuntu-24.04 -u root -e apt-get install --yes python3-venv",
            "wsl -d Ubuntu-24.04 --cd ~",
            note="Windows may want a restart after the first line; the last one opens Ubuntu: paste there the line "
            "that potluck host prints for a machine without Potluck",
            admin=True,
        ),
        why="torchft has no build for Windows, and Gloo of Windows cannot talk to Gloo of Linux",
    )


def _looks_like_nat(facts: Facts) -> bool:
    mine = [a for a in facts.addresses if not is_within(a, "127.0.0.0/8")]
    theirs = {a for adapter in (facts.windows.adapters if facts.windows else ()) for a in adapter.addresses}
    return bool(mine) and all(is_within(a, "172.16.0.0/12") for a in mine) and not theirs & set(mine)


def _metric(adapter: Adapter) -> int:
    assert adapter.metric is not None
    return adapter.metric


WINDOWS = (
    MachineCheck("wsl1", "WSL is of version 1", version),
    MachineCheck("wslconfig-encoding", ".wslconfig cannot be read by WSL", config_encoding),
    MachineCheck("wsl-wrong-adapter", "Windows prefers Wi-Fi to the cable", adapter_order),
    MachineCheck("wsl-idle", "WSL ends when its terminal closes", idle),
    MachineCheck("network-public-profile", "Windows treats the network as Public", public_profile),
    MachineCheck("windows-native", "Python runs on Windows itself", native),
)
