"""The shape of src: who may import whom, how large a class may grow, and that no two classes share a name."""

import ast
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import potluck

PACKAGE = Path(potluck.__file__).parent
MOST_ATTRIBUTES = 15
MOST_METHODS = 20

# Classes above the limits, and why. An entry that is not needed any more fails the test below, as does a new offender.
LARGE_CLASSES = {
    "Assignment": "one field for each thing that a machine has to know of its part in a run; no behaviour",
    "Facts": "one field for each fact that the doctor's checks read; no behaviour",
    "Launch": "one field for each environment variable that a worker is started with; no behaviour",
    "Member": "one field for each thing that a worker says of itself when a group forms; no behaviour",
    "RunOptions": "one field for each option of a run, which help, files and potluck.start share; no behaviour",
    "RunRecord": "one field for each entry of a run's file on the host's disk, which later versions read; no behaviour",
    "RunState": "one field for each figure that a worker's events add up to; changed by events.state.apply only",
    "StoredProfile": "one field for each entry of a profile's file, which later versions read; no behaviour",
}
PROBES = "potluck.probes."


@cache
def trees():
    """Every module of src by its dotted name."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(file.read_text())
    return found


@cache
def imports():
    """The modules that each module imports: at its top, inside functions, and for types only."""
    graph = {}
    for module, tree in trees().items():
        named = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    named.add(inner if inner in trees() else node.module)
        graph[module] = (named & trees().keys()) - {module}
    return graph


@cache
def package_of(module):
    """A package's own files count as one more subpackage, under the package's name."""
    is_package = any(other.startswith(f"{module}.") for other in trees())
    return module if is_package else module.rpartition(".")[0]


def class_definitions():
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield module, node


def attributes_of(definition):
    fields = {
        node.target.id
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assigned = {
        node.attr
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    return fields | assigned


def methods_of(definition):
    return [node.name for node in definition.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_no_two_classes_share_a_name():
    places = defaultdict(list)
    for module, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_no_class_is_large_except_those_listed_with_their_reason():
    large = {}
    for module, definition in class_definitions():
        attributes, methods = len(attributes_of(definition)), len(methods_of(definition))
        if attributes > MOST_ATTRIBUTES or methods > MOST_METHODS:
            large[definition.name] = f"{module}: {attributes} attributes, {methods} methods"
    assert {name: size for name, size in large.items() if name not in LARGE_CLASSES} == {}
    assert LARGE_CLASSES.keys() - large.keys() == set(), "these are small by now: take them off the list"


def circles(graph):
    """What is left of an import graph when whatever imports nothing of the rest is taken away, again and again."""
    left = {one: set(others) for one, others in graph.items()}
    while done := {one for one, others in left.items() if not others & left.keys()}:
        left = {one: others for one, others in left.items() if one not in done}
    return {one: sorted(others & left.keys()) for one, others in left.items()}


def test_no_files_import_each_other_in_a_circle():
    assert circles(imports()) == {}


def test_no_subpackages_import_each_other_in_a_circle():
    graph = defaultdict(set)
    for module, others in imports().items():
        graph[package_of(module)] |= {package_of(other) for other in others} - {package_of(module)}
    del graph["potluck"]  # the public names, which workloads builds on, and __main__, which starts cli
    assert circles(graph) == {}


def started_with_m():
    """Modules of ours that a module starts as programs, with python -m: imports that import-linter cannot see."""
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.List | ast.Tuple):
                words = [one.value if isinstance(one, ast.Constant) else None for one in node.elts]
                for before, after in pairwise(words):
                    if before == "-m" and isinstance(after, str) and after.split(".")[0] == "potluck":
                        yield module, after


def test_every_program_started_with_m_exists():
    started = set(started_with_m())
    assert any(program.startswith(PROBES) for _, program in started)
    programs = {program for _, program in started}
    assert {one for one in programs if one not in trees() and f"{one}.__main__" not in trees()} == set()
    assert {one for one in programs if one in trees() and package_of(one) == one and one != "potluck"} == set()


def test_a_layer_starts_programs_of_its_own_or_probes():
    strays = [
        (module, program)
        for module, program in started_with_m()
        if not program.startswith(PROBES) and program.split(".")[1:2] != module.split(".")[1:2]
    ]
    # The agent measures a model as a user would: with the command line. A service is a command line kept by systemd.
    # With several devices a machine runs the same command line once on each.
    users = {"potluck.meeting.agent.measured", "potluck.cli.service_units", "potluck.cli.train"}
    assert [(module, program) for module, program in strays if program != "potluck"] == []
    assert {module for module, program in strays if program == "potluck"} <= users


def test_every_probe_is_started_by_somebody():
    probes = {module for module in trees() if module.startswith(PROBES) and package_of(module) != module}
    started = {program for _, program in started_with_m()}
    helpers = {other for probe in probes for other in imports()[probe] if other.startswith(PROBES)}
    sent = {"potluck.probes.selftest.joined"}  # imported by the script of a run: selftest/joined_run.py
    assert probes - started - helpers - sent == set()


def test_every_file_and_subpackage_opens_with_a_sentence():
    assert [module for module, tree in trees().items() if not (ast.get_docstring(tree) or "").strip()] == []
