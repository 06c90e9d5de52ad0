"""What travels between machines and the host, as checked types."""

import ssl
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field

from potluck.core.states import Order, WorkerPhase
from potluck.meeting.questions import Answer, Ask

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
MachineName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Short = Annotated[str, Field(max_length=300)]
Typed = Annotated[str, Field(max_length=4000)]
Port = Annotated[int, Field(ge=1, le=65535)]
Address = Annotated[str, AfterValidator(lambda text: str(IPv4Address(text)))]


def _read_as(kind: Any) -> AfterValidator:
    """Text that the doctor reads as this kind of message."""

    def check(text: str) -> str:
        try:
            msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(check)


MDNS_SERVICE = "_potluck._tcp.local."
GOODBYE = b"goodbye"
"""What a host writes to the agent of its own machine when it ends in order."""
PROOF_HEADER = "X-Potluck-Proof"
ANSWER_S = 75.0  # importing torch may take a minute
POLL_S = 5.0  # how long the host keeps a question open when there is no news


class WireMessage(BaseModel):
    """Everything on the wire: unknown keys are refused, so that two versions never half-understand each other."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _certificate(pem: str) -> str:
    ssl.PEM_cert_to_DER_cert(pem)  # ValueError if it is none
    return pem


class Introduction(WireMessage):
    """A machine as it describes itself when it joins."""

    machine: MachineName
    machine_id: Short
    os: Short
    cores: int = Field(ge=1, le=100_000)
    address: Address
    firewall_command: Typed = Field(validation_alias=AliasChoices("firewall_command", "let_in"))
    """What to type on it, so that the machines next to it can dial its gate; `let_in` in earlier rosters."""
    user: Short = ""
    certificate: Annotated[str, Field(max_length=4000), AfterValidator(_certificate)]
    """What its gate shows to the others' gates."""
    versions: dict[Short, Short] = Field(max_length=20)
    can_train: bool = True


class JoinRequest(WireMessage):
    """Asks to be let in; the proof of the token is in a header, over these bytes."""

    challenge: Short
    facts: Introduction
    clock_ahead_s: float = Field(allow_inf_nan=False)
    """This machine's clock minus the host's, by the middle of a round trip."""
    round_trip_s: float = Field(ge=0, allow_inf_nan=False)


class JoinAnswer(WireMessage):
    """Let in."""

    host: MachineName
    credential: Short
    proof: Digest
    """That the host knows the token too."""


class VersionAnswer(WireMessage):
    """The only thing that anybody may ask."""

    potluck: str
    host: str
    time: float
    challenge: str


class WorkerReport(WireMessage):
    """Where one worker of a run stands, as its machine tells it."""

    run: Name
    worker: int = Field(ge=0, le=1_000_000)
    state: WorkerPhase
    message: Annotated[str, Field(max_length=20_000)] = ""
    restarts: int = Field(default=0, ge=0)
    start_number: int = Field(default=1, ge=1)
    """Which of the run's starts this is about."""
    is_home: bool = False
    """Whether everything that it wrote has reached the host."""


class Reach(WireMessage):
    """Where a machine's gate may be dialled, best first."""

    addresses: list[Address] = Field(max_length=32)
    port: Port
    seen_at: Address | None = None
    """Where the host saw it come from; another one than its own, if something translates its addresses."""

    @property
    def is_translated(self) -> bool:
        return self.seen_at is not None and self.seen_at not in self.addresses

    @property
    def candidates(self) -> list[str]:
        """Where to dial it: where it was seen comes last, since a forwarded port may lead back to it."""
        return [*self.addresses, *([self.seen_at] if self.seen_at and self.is_translated else [])]


class LinkReport(WireMessage):
    """How a machine reaches another."""

    machine: MachineName
    way: Literal["here", "direct", "relayed", "down"]
    dialled: bool = False
    """By the machine that reports; else the other one dialled."""
    round_trip_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    trouble: Short = ""


class Report(WireMessage):
    """What a machine tells when something has changed, and first of all after a pause."""

    devices: list[Short] | None = Field(default=None, max_length=64)
    """None while the machine still gets ready."""
    reach: Reach | None = None
    links: list[LinkReport] = Field(default=[], max_length=5000)
    workers: list[WorkerReport] = Field(default=[], max_length=1000)
    is_leaving: bool = False


class PollRequest(WireMessage):
    """Asks for work, and waits if nothing has changed since the orders with this digest."""

    known: Short = ""


class RunTask(WireMessage):
    """What every worker of a run does: a built-in model with settings, or a script from a bundle."""

    settings: dict[str, Any] | None = None
    bundle: Digest | None = None
    entry: Short = ""
    arguments: list[Annotated[str, Field(max_length=10_000)]] = Field(default=[], max_length=1000)


class Assignment(WireMessage):
    """One run's part for one machine."""

    run: Name
    run_id: str
    """Tells this run from another of the same name that this machine may remember."""
    phase: Order
    task: RunTask
    started_by: Short
    workers: list[int]
    devices: list[str]
    expected: int
    lighthouse_port: int
    secret: str
    runs_dir: str | None
    """Where the host's own machine writes: straight into the run's folder."""
    start_number: int = 1
    """Workers of an earlier start end before those of this one begin."""
    is_resumed: bool = False
    is_direct: bool = False
    """Gradients go from machine to machine in the open, not through the gates."""
    fetches_checkpoint: bool = False
    """Nobody else in this run has the host's newest checkpoint: this machine gets it."""


class Visit(WireMessage):
    """A visit of the doctor's that is going on, and what a machine has to answer now; number 0 is no question."""

    visit: Name
    number: int = Field(default=0, ge=0)
    ask: str = ""


class VisitBegun(WireMessage):
    """A new visit: the machines that can be asked, those that should be here, and the runs that are on."""

    visit: Name
    machines: dict[MachineName, str]
    """By name, their loopback addresses on all of them."""
    gates: dict[MachineName, Reach]
    links: list[dict[str, Any]]
    """As `potluck status` has them."""
    devices: dict[MachineName, list[str]]
    """Those that each trains on; none while it still gets ready."""
    absent: list[MachineName]
    runs: list[Name]


class VisitQuestion(WireMessage):
    """A question to one machine, in the words of the doctor or of whoever measures (JSON)."""

    machine: MachineName
    patience_s: float = Field(default=ANSWER_S, gt=0, le=600)
    ask: Annotated[str, Field(max_length=100_000), _read_as(Ask)]


class VisitAnswer(WireMessage):
    """The answer, or in one sentence why there is none."""

    number: int = Field(ge=0)
    answer: Annotated[str, Field(max_length=1_000_000), _read_as(Answer)] | None = None
    error: Short = ""


class GateMember(WireMessage):
    """A machine that the gates of all others let in."""

    machine: MachineName
    number: int
    certificate: str
    addresses: list[str]
    port: int


class GateOrders(WireMessage):
    """Who is a member now, and which machines have a part in what."""

    block: str
    host: MachineName
    members: list[GateMember]
    runs: dict[str, list[MachineName]]


class Orders(WireMessage):
    """All that a machine should be doing now."""

    gate: GateOrders
    assignments: list[Assignment]
    visits: list[Visit] = []
    leave: bool = False
    is_sent_away: bool = False
    """By another machine: what this one knows of the host is worth nothing any more."""
    trouble: list[str] = []
    """Lines for the person at this machine: whom it cannot reach, who waits for whom, and what to type."""
    digest: str

    def unchanged(self) -> "Orders":
        """The answer to a machine that knows these orders: the digest says so, and nothing else is in it."""
        gate = self.gate.model_copy(update={"members": [], "runs": {}})
        return Orders(gate=gate, assignments=[], digest=self.digest)


class RunRequest(WireMessage):
    """Asks for a run on everyone joined, or on some."""

    name: Name | None = None
    resume: bool = False
    task: RunTask
    machines: list[MachineName] | None = Field(default=None, max_length=1000)
    without: list[MachineName] = Field(default=[], max_length=1000)
    is_direct: bool = False


class NewsRequest(WireMessage):
    """Asks for what was written since: how far each file has been read."""

    offsets: dict[Annotated[str, Field(max_length=200)], Annotated[int, Field(ge=0)]] = Field(
        default={}, max_length=2000
    )


class Problem(WireMessage):
    """A refusal: what happened, and the fix."""

    error: str
    fix: str
