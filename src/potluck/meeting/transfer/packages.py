"""Finds the Python packages that a script needs by parsing its files; nothing of the script is run."""

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

_IMPORT_FAILURES = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_BY_POTLUCK = {"potluck"}  # always installed: this code is part of it


def missing_packages(script_folder: Path, entry: Path) -> list[str]:
    """Packages that the script imports and this machine does not have."""
    return not_importable(imported_packages(script_folder, entry))


def not_importable(packages: Iterable[str]) -> list[str]:
    """The packages that this machine does not have. Nothing is imported."""
    return sorted(package for package in packages if not _is_importable(package))


def imported_packages(script_folder: Path, entry: Path) -> list[str]:
    """Top-level packages from outside the folder that the script, and the folder's modules that it imports, need.

    An import under an `if`, or in a `try` that catches its failure, is optional and does not count.
    """
    _, needed = read_script(script_folder, entry)
    return sorted(needed - set(sys.stdlib_module_names) - _BY_POTLUCK)


def read_script(script_folder: Path, entry: Path) -> tuple[set[Path], set[str]]:
    """The script and the folder's files that it imports, and all top-level packages that these need from outside."""
    script = script_folder / entry
    roots = list(dict.fromkeys([script.parent, script_folder]))
    needed: set[str] = set()
    seen, to_read = {script}, [script]
    while to_read:
        file = to_read.pop()
        for module in _imported_modules(file, roots):
            own = _own_files(module, roots)
            if not own:
                needed.add(module.split(".")[0])
            to_read += [found for found in own if found not in seen]
            seen.update(own)
    return seen, needed


def requirements(packages: Iterable[str]) -> dict[str, str]:
    """For each package that this machine has: the name and version of its distribution, as pip install takes them."""
    holders = metadata.packages_distributions()
    return {
        package: f"{holders[package][0]}=={metadata.version(holders[package][0])}".split("+")[0]
        for package in packages
        if package in holders
    }


def _is_importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # in sys.modules without a spec: it is here
        return True
    except ImportError:
        return False


def _imported_modules(file: Path, roots: list[Path]) -> Iterator[str]:
    """Dotted names, relative imports resolved; `from a import b` gives a.b, which is a module or a name in one."""
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (OSError, SyntaxError, ValueError):
        return  # running the script gives a better error
    for node in _certain_imports(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            continue
        base = node.module or ""
        if node.level:
            package = _package_of(file, roots)
            base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            if not base:
                continue
        yield from (f"{base}.{alias.name}" if alias.name != "*" else base for alias in node.names)


def _certain_imports(node: ast.AST) -> "Iterator[ast.Import | ast.ImportFrom]":
    """Imports that are not optional: in no `if` but the main guard, in no `try` that catches their failure."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    elif not _is_a_choice(node):
        for child in ast.iter_child_nodes(node):
            yield from _certain_imports(child)


def _is_a_choice(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return not _is_main_guard(node)
    return isinstance(node, ast.Try) and any(_catches_import_failures(handler) for handler in node.handlers)


def _is_main_guard(node: ast.If) -> bool:
    return (
        isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Name) and node.test.left.id == "__name__"
    )


def _catches_import_failures(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _IMPORT_FAILURES for kind in kinds)


def _package_of(file: Path, roots: list[Path]) -> list[str]:
    root = next(root for root in roots if file.is_relative_to(root))
    return list(file.relative_to(root).parent.parts)


def _own_files(module: str, roots: list[Path]) -> list[Path]:
    """Files of the script's folder that importing the module reads; empty if the module is not the folder's own."""
    parts = module.split(".")
    for root in roots:
        package = root / parts[0]
        if not (package.with_name(f"{parts[0]}.py").is_file() or (package.is_dir() and any(package.rglob("*.py")))):
            continue
        found = []
        for length in range(1, len(parts) + 1):
            path = root.joinpath(*parts[:length])
            found += [file for file in (path.with_name(f"{path.name}.py"), path / "__init__.py") if file.is_file()]
        # A namespace package has no file to read, but still belongs to the folder.
        return found or [package]
    return []
