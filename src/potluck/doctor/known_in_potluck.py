"""Potluck's own error texts, for users who find one in a log without the fix that Potluck printed below it."""

from potluck.doctor.known_error import known

KNOWN_IN_POTLUCK = (
    known(
        "not-a-member",
        r"this host does not know this machine",
        "the host has taken this machine off its roster, or is another host than before",
        "on this machine: potluck join LINE, with the line that potluck host prints",
    ),
    known(
        "host-silent",
        r"the host at (?P<name>\S+) does not answer|HostSilentError|"
        r"\w (?:has not answered|does not answer) for \d+ s",
        "the host's machine is off or asleep, potluck host does not run there, or a firewall drops the packets",
        "see whether potluck host runs there; then on this machine: potluck doctor --cluster",
    ),
    known(
        "host-failed",
        r"the host answers with status 5\d\d",
        "the host met an error while it answered",
        "read what potluck host printed on its machine: the last error there is the cause",
    ),
    known(
        "too-many-answers",
        r"too many wrong answers from",
        "this address gave a wrong token or credential too often, so the host does not listen to it for a while",
        "wait a minute, then paste the whole line that potluck host prints: potluck join LINE",
    ),
    known(
        "versions-apart",
        r"they do not train together",
        "the machine and the host have different versions of Potluck or torchft, or versions of Python or torch that "
        "are more than two minor versions apart",
        "on the machine that was refused: the command that was printed with the error; potluck join prints it again",
    ),
    known(
        "parity-check",
        r"does not compute what \S+ .{0,200}computes: parity check",
        "the machine's Python or torch is another version than the host's, and gives other numbers in a small "
        "training step: a run on both would not be the run of one machine",
        "on the machine that was refused: install the host's version of torch, as printed with the error; "
        "to see the numbers, on both: python -m potluck.probes.parity",
    ),
    known(
        "not-joined",
        r"this machine has not joined a host",
        "the command needs other machines, and this one belongs to no host",
        "potluck join LINE with the line that potluck host prints; or train here alone with --solo",
    ),
    known(
        "no-script",
        r"there is no script --",
        "an option was taken for the script's path",
        "options of potluck run stand before the script, the script's own options after it: "
        "potluck run --solo train.py --epochs 3",
    ),
    known(
        "no-run",
        r"there is no run \S",
        "no run of that name is in this folder on this machine; runs on a cluster lie on the host",
        "potluck runs lists the runs here; on the host: potluck report NAME",
    ),
    known(
        "other-model",
        r"trains another model than",
        "two workers of one run have models with different parameters",
        "start the run with the same script and the same settings on every machine; potluck run sends them along",
    ),
    known(
        "step-not-applied",
        r"the loop asks for the next batch, but step \d+ was never applied",
        "the loop went on without optimizer.step(): perhaps gradients are added up over several batches by hand",
        "call optimizer.step() for every batch; for larger batches raise global_batch: Potluck cuts it into "
        "micro-batches by itself (micro_batch in potluck.start)",
    ),
    known(
        "no-new-gradient",
        r"optimizer\.step was called without a new gradient",
        "optimizer.step() has no gradient from run.backward: perhaps the script calls loss.backward()",
        "call run.backward(loss) instead of loss.backward(), then optimizer.step()",
    ),
    known(
        "no-data",
        r"the run has no data yet",
        "the script trains with a DataLoader of its own",
        "take batches from run.loader(dataset, global_batch=64) and iterate it inside run.epochs",
    ),
    known(
        "graceful-shutdown",
        r"timeout graceful shutdown exceeded",
        "the host was closed while a machine was waiting for an answer",
        "nothing: machines that have joined come back when potluck host runs again",
    ),
    known(
        "account-race",
        r"\.account\.json\S*\.tmp",
        "two parts of the host wrote the run's account at the same moment",
        "nothing is lost: potluck report NAME makes the account again",
    ),
    known(
        "page-not-open",
        r"ERR_CONNECTION_REFUSED",
        "nothing listens at that address yet, or not any more",
        "wait a few seconds and load the page again; see whether potluck dashboard still runs",
    ),
    known(
        "plot-failed",
        r"vl_convert",
        "the library that draws the report's plots refused a text in the run's events",
        "read the run without plots: potluck report NAME",
    ),
    known(
        "cut-request",
        r"h11\S*LocalProtocolError|LocalProtocolError",
        "somebody closed a connection to the host in the middle of an answer",
        "nothing: the host goes on; if a machine of yours is away, look there with: potluck doctor",
    ),
)
