"""Messages between machines and the host, as types that check their values."""

import ssl
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

import msgspec
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from potluck.core.machine_names import MACHINE_NAME
from potluck.core.printable import printable
from potluck.core.run_variables import MOST_VARIABLES
from potluck.core.states import Order, WorkerPhase
from potluck.gates.loopback import address_of
from potluck.machine.parity import ParityReading
from potluck.meeting.questions import Answer, Ask

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
MachineName = Annotated[str, Field(pattern=MACHINE_NAME)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Requirement = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}==[A-Za-z0-9._!-]{1,50}$")]
"""A distribution and its version; the characters are safe to paste into a shell."""
Short = Annotated[str, Field(max_length=300)]
Shown = Annotated[str, Field(max_length=300), AfterValidator(printable)]
"""Text of another machine that is printed as it is."""
Typed = Annotated[str, Field(max_length=4000)]
Port = Annotated[int, Field(ge=1, le=65535)]
Address = Annotated[str, AfterValidator(lambda text: str(IPv4Address(text)))]


def _read_as(kind: Any) -> AfterValidator:
    """Validator: the text must be JSON of this msgspec type."""

    def check(text: str) -> str:
        try:
            msgspec.json.decode(text, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:  # JSON that is nested too deep
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(check)


MDNS_SERVICE = "_potluck._tcp.local."
GOODBYE = b"goodbye"
"""A host that shuts down in order writes this to the stdin of its own machine's agent."""
AGENT_REFUSED = 4
"""The exit code of that agent if its host does not let it in: another one would fare no better."""
PROOF_HEADER = "X-Potluck-Proof"
PARITY_WANTED = 428
"""HTTP status (Precondition Required): the machine has other versions, and is to join with a parity reading."""
ANSWER_S = 75.0  # importing torch may take a minute
POLL_S = 5.0  # how long the host holds a long poll when there is no news


class WireMessage(BaseModel):
    """Base of all messages: unknown keys are refused, so that two versions of Potluck never misread each other."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _without_empty(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """The message without these keys where they are empty: earlier releases do not know them."""
    return {name: value for name, value in data.items() if value or name not in names}


def _certificate(pem: str) -> str:
    ssl.PEM_cert_to_DER_cert(pem)  # ValueError if `pem` is no certificate
    return pem


class Introduction(WireMessage):
    """A machine as it describes itself when it joins."""

    machine: MachineName
    machine_id: Short
    os: Short
    cores: int = Field(ge=1, le=100_000)
    address: Address
    firewall_command: Typed = Field(validation_alias=AliasChoices("firewall_command", "let_in"))
    """Command that lets machines of this machine's network dial its gate; named `let_in` in earlier rosters."""
    user: Short = ""
    certificate: Annotated[str, Field(max_length=4000), AfterValidator(_certificate)]
    """The TLS certificate that this machine's gate shows to other gates."""
    versions: dict[Short, Short] = Field(max_length=20)
    can_train: bool = True
    is_container: bool = False
    """Whether Docker or Podman runs this machine: ports, firewall and clock are those of the computer around it."""


class JoinRequest(WireMessage):
    """Request to join a host; PROOF_HEADER carries the proof of the token, computed over these bytes."""

    challenge: Short
    facts: Introduction
    clock_ahead_s: float = Field(allow_inf_nan=False)
    """This machine's clock minus the host's, both taken at the middle of a round trip."""
    round_trip_s: float = Field(ge=0, allow_inf_nan=False)
    parity: Annotated[str, Field(max_length=30_000), _read_as(ParityReading)] | None = None
    """JSON of this machine's ParityReading, once the host has asked for it."""


class JoinAnswer(WireMessage):
    """The host has admitted the machine."""

    host: MachineName
    credential: Short
    proof: Digest
    """Proof that the host knows the token too."""


class VersionAnswer(WireMessage):
    """Answer to GET /version, the only request that needs neither a credential nor a proof."""

    potluck: str
    host: str
    time: float
    challenge: str


class SharedFolder(WireMessage):
    """A folder of data that one machine has and the others of a run get. Its path never leaves the machine."""

    name: Name
    catalogue: Digest
    """SHA-256 of the list of its files and their hashes, which the host keeps."""
    source: MachineName
    size_bytes: int = Field(ge=0)
    num_files: int = Field(ge=0)
    link: Short = ""
    """Where it lies in the script's folder, if it does."""
    comes_first: bool = False
    """The script begins when all of the folder has arrived."""


class SharingOrder(WireMessage):
    """A run's folders of data, and the machines that have or get them with their ports."""

    run: Name
    run_id: str
    folders: list[SharedFolder]
    peers: dict[MachineName, Port]


class DataReport(WireMessage):
    """How far a run's data has arrived on the reporting machine."""

    run_id: Name
    port: Port
    have_bytes: int = Field(ge=0)
    total_bytes: int = Field(ge=0)
    trouble: Short = ""


class WorkerReport(WireMessage):
    """State of one worker of a run, as its machine reports it."""

    run: Name
    worker: int = Field(ge=0, le=1_000_000)
    state: WorkerPhase
    message: Annotated[str, Field(max_length=20_000)] = ""
    restarts: int = Field(default=0, ge=0)
    start_number: int = Field(default=1, ge=1)
    """The start of the run that this report is about; see RunRecord.start_number."""
    is_home: bool = False
    """Whether everything that the worker wrote has reached the host."""


class Reach(WireMessage):
    """Addresses at which a machine's gate may be dialled, best first, and its port."""

    addresses: list[Address] = Field(max_length=32)
    port: Port
    seen_at: Address | None = None
    """Source address of the machine's reports at the host; behind NAT it is none of `addresses`."""

    @property
    def is_translated(self) -> bool:
        return self.seen_at is not None and self.seen_at not in self.addresses

    @property
    def candidates(self) -> list[str]:
        """Addresses to dial. Behind NAT `seen_at` is the last one, since a port may be forwarded from there."""
        return [*self.addresses, *([self.seen_at] if self.seen_at and self.is_translated else [])]


class LinkReport(WireMessage):
    """How the reporting machine reaches `machine`."""

    machine: MachineName
    way: Literal["here", "direct", "relayed", "down"]
    dialled: bool = False
    """True if the reporting machine opened the connection, False if the other machine did."""
    round_trip_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    trouble: Short = ""


class Report(WireMessage):
    """State of a machine, sent to the host when it changes and when a silent host answers again."""

    devices: list[Short] | None = Field(default=None, max_length=64)
    """None until the machine has counted its devices."""
    cards: dict[Short, Shown] = Field(default={}, max_length=64)
    """By device: the name of its card, where torch knows it. Left out if empty, as in reports of earlier releases."""
    reach: Reach | None = None
    links: list[LinkReport] = Field(default=[], max_length=5000)
    workers: list[WorkerReport] = Field(default=[], max_length=1000)
    data: list[DataReport] = Field(default=[], max_length=64)
    is_leaving: bool = False
    gives_up_vote: bool = False
    """The machine has noted on its disk that it votes for nobody until it joins again. Left out if False."""

    @model_serializer(mode="wrap")
    def _as_data(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_empty(dump(self), "cards", "data", "gives_up_vote")


class PollRequest(WireMessage):
    """Long poll for orders: the host waits with its answer while the orders still have the digest `known`."""

    known: Short = ""
    electorate: int = Field(default=0, ge=0)
    """The number of the newest electorate that this machine has noted on disk. Left out if it is 0."""

    @model_serializer(mode="wrap")
    def _as_data(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_empty(dump(self), "electorate")


class RunTask(WireMessage):
    """What every worker of a run does: a built-in model with settings, or a script from a bundle."""

    settings: dict[str, Any] | None = None
    bundle: Digest | None = None
    entry: Short = ""
    arguments: list[Annotated[str, Field(max_length=10_000)]] = Field(default=[], max_length=1000)
    env: list[Annotated[str, Field(max_length=10_000)]] = Field(default=[], max_length=MOST_VARIABLES)
    """Of a script: variables for every worker, as NAME=VALUE; a built-in model has them in its settings."""
    keep: list[MachineName] = Field(default=[], max_length=1000)
    """Of a script that uses Potluck: machines that take part even if they slow the run."""
    exchange: dict[Short, str | int | float] = Field(default={}, max_length=10)
    """Of a script that uses Potluck: options of the exchange between machines, in place of the script's own."""
    is_plain: bool = False
    """The script does not use Potluck: it gets torchrun's variables, and all its workers last as long as the run."""
    data: list[SharedFolder] = Field(default=[], max_length=16)
    """Folders that the machine which started the run has, and the others get."""
    requirements: dict[Name, Requirement] = Field(default={}, max_length=1000)
    """Of the packages that the script imports: the distributions on the machine that started the run."""

    @model_serializer(mode="wrap")
    def _as_data(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_empty(dump(self), "exchange", "data")

    @property
    def env_words(self) -> list[str]:
        """The variables that the user gives to every worker, as NAME=VALUE."""
        return self.env if self.settings is None else list(self.settings.get("env") or [])

    @property
    def kept_machines(self) -> list[str]:
        """The machines that the user names with --keep."""
        found = self.keep if self.settings is None else self.settings.get("keep")
        return [str(name) for name in found] if isinstance(found, list) else []


class PlainPlace(WireMessage):
    """A machine's place among the machines of a plain run, as torchrun's variables describe it."""

    master: MachineName
    """The machine of rank 0, which serves the store."""
    node_rank: int
    num_nodes: int
    world_size: int


class Assignment(WireMessage):
    """One machine's part in one run."""

    run: Name
    run_id: str
    """Distinguishes this run from another of the same name whose folder this machine may still have."""
    phase: Order
    task: RunTask
    started_by: Short
    workers: list[int]
    devices: list[str]
    expected: int
    lighthouse_port: int
    """Where workers meet: the port of the run's lighthouse; in a plain run, of the store that rank 0 serves."""
    secret: str
    runs_dir: str | None
    """Folder of all runs on the host's own machine, whose workers write straight into it; None on other machines."""
    start_number: int = 1
    """Number of the run's start; workers of an earlier start end before workers of this start begin."""
    is_resumed: bool = False
    is_direct: bool = False
    """Gradients go from machine to machine unencrypted, past the gates."""
    fetches_checkpoint: bool = False
    """This machine fetches the host's newest checkpoint: the run is resumed, and the host does not train in it."""
    plain: PlainPlace | None = None
    """Set in a plain run."""


class Visit(WireMessage):
    """An open visit (a series of questions to machines) and this machine's current question; number 0 means none."""

    visit: Name
    number: int = Field(default=0, ge=0)
    ask: str = ""


class VisitBegun(WireMessage):
    """A new visit: the machines that can be asked, the machines that are away, and the runs in progress."""

    visit: Name
    machines: dict[MachineName, str]
    """Each machine's loopback address, which is the same on all machines, by the machine's name."""
    gates: dict[MachineName, Reach]
    links: list[dict[str, Any]]
    """Links between machines, as in `potluck status --json`."""
    devices: dict[MachineName, list[str]]
    """Devices that each machine trains on; empty until the machine has counted them."""
    absent: list[MachineName]
    runs: list[Name]


class VisitQuestion(WireMessage):
    """A question to one machine; `ask` is JSON of `questions.Ask`."""

    machine: MachineName
    patience_s: float = Field(default=ANSWER_S, gt=0, le=600)
    ask: Annotated[str, Field(max_length=100_000), _read_as(Ask)]


class VisitAnswer(WireMessage):
    """A machine's answer, as JSON of `questions.Answer`, or in one sentence why there is none."""

    number: int = Field(ge=0)
    answer: Annotated[str, Field(max_length=1_000_000), _read_as(Answer)] | None = None
    error: Short = ""


class GateMember(WireMessage):
    """A machine that the gates of all other machines let in."""

    machine: MachineName
    number: int
    certificate: str
    addresses: list[str]
    port: int


class Voters(WireMessage):
    """Machines that decide together who is the host: more than half of them, or half with the tie-breaker."""

    machines: list[MachineName]
    tie_breaker: MachineName


class Succession(WireMessage):
    """Who decides about the host, and which machines keep its state and may take its place, in this order."""

    term: int = 0
    """Counts the cluster's hosts; 0 if only one machine may ever be the host."""
    number: int = 0
    """Counts changes of the electorates: who knows an older one cannot become the host."""
    electorates: list[Voters] = []
    """All have to agree; two while the host changes from one to the other."""
    successors: list[MachineName] = []

    def voters(self) -> list[str]:
        """All machines that have a vote."""
        return list(dict.fromkeys(name for electorate in self.electorates for name in electorate.machines))


class GateOrders(WireMessage):
    """Settings for all gates: the current members, the machines of each run, and who may become the host."""

    block: str
    host: MachineName
    members: list[GateMember]
    runs: dict[str, list[MachineName]]
    succession: Succession = Succession()

    @model_serializer(mode="wrap")
    def _as_data(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = dump(self)
        if not self.succession.term:
            data.pop("succession", None)
        return data

    def has(self, machine: str) -> bool:
        """Whether the host lists this machine's gate among the members, which takes a moment after joining again."""
        return any(one.machine == machine for one in self.members)

    def addresses(self) -> dict[str, str]:
        """Each member's loopback address, which is the same on all machines."""
        return {one.machine: address_of(self.block, one.number) for one in self.members}


class MemberChanges(WireMessage):
    """The gates' members that are other than in the orders that a machine knows; all others are as in those."""

    changed: list[GateMember] = []
    gone: list[MachineName] = []


class Orders(WireMessage):
    """Everything that a machine should be doing now."""

    gate: GateOrders
    member_changes: MemberChanges | None = None
    """Stands in place of all members in `gate`, for a machine that knows earlier orders."""
    assignments: list[Assignment]
    visits: list[Visit] = []
    leave: bool = False
    is_sent_away: bool = False
    """Another machine asked for this leave: the host forgets this machine and its credential."""
    trouble: list[str] = []
    """Lines to print on this machine: machines that it cannot reach, workers that wait for others, and what to type."""
    data: list[SharingOrder] = []
    digest: str

    @model_serializer(mode="wrap")
    def _as_data(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_empty(dump(self), "data", "member_changes")

    def complete(self, known: "Orders | None") -> "Orders":
        """These orders with all members; `known` are the orders before, which the poll for these has named."""
        if self.member_changes is None:
            return self
        members = {} if known is None else {one.machine: one for one in known.gate.members}
        members |= {one.machine: one for one in self.member_changes.changed}
        left = [one for name, one in members.items() if name not in self.member_changes.gone]
        return self.model_copy(update={"gate": self.gate.model_copy(update={"members": left}), "member_changes": None})

    def unchanged(self) -> "Orders":
        """The answer to a machine that already has these orders: the same digest, and no content."""
        gate = self.gate.model_copy(update={"members": [], "runs": {}})
        return Orders(gate=gate, assignments=[], digest=self.digest)


class RunRequest(WireMessage):
    """Request for a run on all joined machines, or on some of them."""

    name: Name | None = None
    resume: bool = False
    task: RunTask
    machines: list[MachineName] | None = Field(default=None, max_length=1000)
    without: list[MachineName] = Field(default=[], max_length=1000)
    is_direct: bool = False
    state: Digest | None = None
    """Hash of the checkpoint file that the run begins with. Left out if there is none, as in earlier releases."""

    @model_serializer(mode="wrap")
    def _as_data(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_empty(dump(self), "state")


class NewsRequest(WireMessage):
    """Long poll for new lines of a run's files; `offsets` says how far each file has been read."""

    offsets: dict[Annotated[str, Field(max_length=200)], Annotated[int, Field(ge=0)]] = Field(
        default={}, max_length=2000
    )
    only_logs: bool = False
    """Only the workers' output, without events."""
    tail_bytes: Annotated[int, Field(ge=0, le=1 << 18)] | None = None
    """Of a file that is not in `offsets`, only the lines in its last bytes."""


class Problem(WireMessage):
    """Body of an error response: what happened, and the fix."""

    error: str
    fix: str
