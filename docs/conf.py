"""The documentation site: Sphinx reads these Markdown pages, README.md and the docstrings of potluck's public names."""

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from potluck import __version__

ROOT = Path(__file__).parent.parent
# Pages of the site whose text is a file of the repository's root, where people and hosting sites look for it.
ROOT_FILES = {
    "index": "README.md",
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "security-policy": "SECURITY.md",
    "code-of-conduct": "CODE_OF_CONDUCT.md",
}
PAGES = {file: f"{page}.md" for page, file in ROOT_FILES.items()}

project = "Potluck"
author = "The Potluck maintainers"
copyright = author  # noqa: A001
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"Potluck {release}"
html_static_path: list[str] = []
exclude_patterns = ["_build"]
myst_heading_anchors = 4  # a link to a heading that does not exist is an error of the build
default_role = "code"  # docstrings write `names` in single backticks
highlight_language = "text"
smartquotes = False  # options stay as they are typed
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
add_module_names = False
python_use_unqualified_type_names = True


def take_root_file(_app: Sphinx, page: str, source: list[str]) -> None:
    """Put a root file's text in the place of its page's first heading, and turn links between both into site links."""
    if page in ROOT_FILES:
        rest = source[0].partition("<!-- end -->")[2]
        text = (ROOT / ROOT_FILES[page]).read_text(encoding="utf-8")
        source[0] = re.sub(r"\]\((?!https?:|mailto:|#)", "](../", text) + rest
    for file, target in PAGES.items():
        source[0] = source[0].replace(f"](../{file}", f"]({target}")
    source[0] = source[0].replace("](../docs/", "](")


def list_parameters(_app: Sphinx, _what: str, _name: str, _value: Any, _options: Any, lines: list[str]) -> None:
    """Our docstrings write a parameter as a line `name: meaning`; Sphinx wants `:param name: meaning`."""
    for number, line in enumerate(lines):
        if number > 1 and (parameter := re.fullmatch(r"(\w+): (.+)", line)):
            lines[number] = f":param {parameter[1]}: {parameter[2]}"


def setup(app: Sphinx) -> None:
    """Sphinx calls this function when it reads the file."""
    app.connect("source-read", take_root_file)
    app.connect("autodoc-process-docstring", list_parameters)
