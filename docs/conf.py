"""The site: the documents of the repository and the docstrings, made by Sphinx; see "The site" in CONTRIBUTING.md."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

project = "langgraph-checkpoint-custom"
html_title = project
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "benchmarks/**.md"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4  # As on GitHub.
html_theme = "furo"
html_static_path = html_css_files = ["site.css"]
html_show_copyright = html_show_sphinx = html_copy_source = False
add_module_names = False
toc_object_entries_show_parents = "hide"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 100


def with_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the documents that the README lists in its last section into the navigation, in groups of the same names."""
    if name == root_doc:
        for group, links in re.findall(r"^- \*\*(.*?):\*\*((?:.*\n)(?:  .*\n)*)", source[0], re.MULTILINE):
            found = re.findall(r"\[([^]]*)\]\(([^)]*)\)", re.sub(r"\s+", " ", links))
            entries = [f"{title[:1].upper()}{title[1:]} <{path}>" for title, path in found]
            source[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {group}", "", *entries, "```", ""])


def as_restructured_text(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Turn the Markdown of a docstring, blocks of Python and `code`, into reStructuredText."""
    is_code = False
    for at, line in enumerate(lines):
        if line.strip().startswith("```"):
            lines[at] = "" if is_code else line.replace("```", ".. code-block:: ") + "\n"
            is_code = not is_code
        else:
            lines[at] = f"    {line}" if is_code else re.sub("`+([^`]+)`+", r"``\1``\\ ", line)
    lines[:] = "\n".join(lines).split("\n")


def with_index(app: Sphinx, error: Exception | None) -> None:
    """Make the README the page of the folder, too."""
    if not error:
        shutil.copy(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the functions above."""
    app.connect("source-read", with_navigation)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)  # Before napoleon.
    app.connect("build-finished", with_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
