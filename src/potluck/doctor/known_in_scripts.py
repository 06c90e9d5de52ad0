"""Error texts of Python and torch that training scripts cause, with the change that the script needs."""

from potluck.doctor.known_error import known

_DOCS = "docs/training-script.md shows the loop"

KNOWN_IN_SCRIPTS = (
    known(
        "module-missing",
        r"ModuleNotFoundError(?:: No module named '(?P<name>[^']+)')?",
        "{name} is a Python package that is not installed here, or a file that was not in the script's folder",
        "on that machine, in the environment that has Potluck: pip install {name} (the package may have another "
        "name); for a file of your own: potluck run --folder FOLDER script.py",
    ),
    known(
        "two-devices",
        r"Expected all tensors to be on the same device|Input type \(.*cuda.*\) and weight type|"
        r"Input type \(.*\) and weight type \(.*cuda.*\)",
        "one tensor is on the CPU and another on a GPU",
        "take the model from run.prepare and batches from run.loader, which are on the run's device already; put "
        "tensors that you make yourself there: tensor.to(run.device)",
    ),
    known(
        "file-handles",
        r"\[Errno 24\]|Too many open files",
        "this process has as many open files and connections as the system allows",
        "raise the limit in that shell: ulimit -n 65536; fewer --loader-workers need fewer",
    ),
    known(
        "read-only",
        r"\[Errno 30\]|Read-only file system",
        "the folder is on a disk that cannot be written to",
        "choose another: export POTLUCK_HOME=FOLDER for what Potluck keeps, POTLUCK_RUNS_DIR=FOLDER for runs",
    ),
    known(
        "no-param-groups",
        r"has no attribute 'param_groups'",
        "an optimizer was expected, and a model was given",
        f"give run.prepare models and optimizers, in any order: run.prepare(model, optimizer); {_DOCS}",
    ),
    known(
        "dataset-without-length",
        r"object of type '\w+' has no len\(\)",
        "the dataset does not know how many samples it has, so nobody can split it",
        f"say it: run.loader(dataset, global_batch=64, num_samples=N), or give the dataset a __len__; {_DOCS}",
    ),
    known(
        "loader-in-loader",
        r"'DataLoader' object is not subscriptable",
        "a DataLoader was given where a dataset is expected",
        f"give run.loader the dataset itself: run.loader(dataset, global_batch=64); {_DOCS}",
    ),
    known(
        "loader-argument",
        r"loader\(\) got an unexpected keyword argument '(?P<name>\w+)'",
        "run.loader has no argument {name}: it shuffles by itself, and splits a global batch over all machines",
        f"write run.loader(dataset, global_batch=64), where 64 is the number of samples a step; {_DOCS}",
    ),
    known(
        "loss-not-a-mean",
        r"a Tensor with \d+ elements cannot be converted to Scalar|"
        r"grad can be implicitly created only for scalar outputs",
        "the loss is one number a sample, and a single number is expected",
        "call run.backward(loss), which takes the mean of such a loss, or write loss.mean()",
    ),
    known(
        "optimizer-missing",
        r"missing 1 required positional argument: 'optimizer'",
        "run.prepare was called with a model alone",
        f"make the optimizer first, then: model, optimizer = run.prepare(model, optimizer); {_DOCS}",
    ),
    known(
        "prepared-attribute",
        r"'SharedLoader' object has no attribute '\w+'|'PreparedModel' object is not subscriptable|"
        r"'PreparedModel' object has no attribute '\w+'",
        "run.prepare and run.loader return objects of Potluck's own, which have not all that yours have",
        f"use your own model or dataset for that, the one that you gave to run.prepare or run.loader; {_DOCS}",
    ),
    known(
        "loss-not-a-number",
        r"\bloss[:=]?\s+(?:is\s+)?(?:now\s+)?(?:not a number|nan|inf)\b",
        "training diverged: the loss is not a number any more, and no later step mends it",
        "start again with a smaller learning rate (--lr), clip gradients with run.clip_gradients(1.0), or train with "
        "bf16 or no mixed precision instead of fp16",
    ),
    known(
        "bad-text",
        r"UnicodeDecodeError|msgspec\.(?:DecodeError|ValidationError)",
        "a file holds other bytes than expected: it is damaged, cut off, or of another kind",
        "the traceback above names the file; get it anew, or move it away and start again",
    ),
    known(
        "recursion",
        r"RecursionError",
        "a function called itself without end, or a file is nested more deeply than any that Potluck writes",
        "the traceback names the function, or the file: a damaged event file can be moved away",
    ),
)
