"""Writes docs/api.md, and finds missing names."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from langgraph_checkpoint_custom.cli.app import app
from tests.reference.contents import LANGGRAPHS, METHODS, PACKAGE, SECTIONS
from tests.reference.source import (
    Found,
    Function,
    attributes,
    find,
    is_module,
    methods,
    names_in_annotations,
    public_names,
    signature,
    summary,
)
from tests.test_architecture import PURE

FOLDER = Path(__file__).parents[2] / "docs"
DOCUMENT = FOLDER / "api.md"
COMMANDS: Any = {
    name: command
    for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]  # It is a group.
    if not command.hidden
}
INTRODUCTION = f"""# API reference

Every public name, with its signature, one line and a link to an example or an explanation. The docstrings say more:
`help(SqliteSaver.put)`. This page is made from them by `python -m tests.reference`.

Names without a module are in `{PACKAGE}`. Two methods in one entry, such as `put` and `aput`,
are the sync and the async version, with the same arguments. You `await` the async version, or use `async for` if it
iterates. The [glossary](glossary.md) explains the words.
"""


def text() -> str:
    """The page."""
    lines = [INTRODUCTION]
    for title, modules in SECTIONS.items():
        lines.append(f"## {title}\n")
        for module, links in modules:
            if module != PACKAGE:
                lines.append(f"In `{module}`:\n")
            for name, link in links.items():
                lines += _entry(module, name, link)
            lines.append("")
        if title == "Savers":
            lines += _methods_of_every_saver()
    lines += _commands()
    lines += _types()
    return "\n".join(lines).rstrip("\n") + "\n"


def missing() -> set[str]:
    """The public names that `contents.py` does not have: `module.name`, or `saver.name` for a method of every saver."""
    listed: dict[str, set[str]] = {}
    for module, name in _listed():
        listed.setdefault(module, set()).add(name)
    public: set[str] = set()
    for module in {PACKAGE, f"{PACKAGE}.aio"} | _documented_modules():
        if any(f".{part}." in module for part in PURE):  # A name there is public if it is in a document.
            public |= {module} - listed.keys()
        else:
            public |= {f"{module}.{name}" for name in public_names(module) if name not in listed.get(module, ())}
    everywhere = {name for names in listed.values() for name in names}
    functions = [(cls.module, each) for cls, own in _saver_methods() for each in own.values()]
    for module, name in _listed():
        found = find(module, name)
        if found and isinstance(found.node, ast.ClassDef):
            functions += [(found.module, each) for each in methods(found.node).values()]
        elif found and isinstance(found.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append((found.module, found.node))
    for module, function in functions:
        public |= {f"{module}.{name}" for name in _classes_in(module, function.returns) if name not in everywhere}
    listed_methods = {name for links in METHODS.values() for name in links}
    for _, own in _saver_methods():
        public |= {f"saver.{name}" for name in own if name not in listed_methods and not _is_twin(name, own)}
    return public


def section(document: str, what: str | re.Pattern[str]) -> str:
    """A link to the section with the first occurrence of a text or pattern, after the introduction."""
    page = (FOLDER / document).read_text("utf-8")
    found = page.find(what) if isinstance(what, str) else _after(page, what)
    assert found >= 0, f"docs/{document} has no {what!r}; tests/reference/contents.py names what the links lead to"
    anchors = anchors_of(page[: page.find("\n", found + 1)])
    begin, end = page.rfind("\n## ", 0, found), page.find("\n## ", found)
    has_code = re.search("^(```|    lgckpt )", page[max(begin, 0) : end if end >= 0 else None], re.MULTILINE)
    name = "Example" if has_code else "More"
    return f"[{name}]({document if len(anchors) < 2 else f'{document}#{anchors[-1]}'})"


def _after(page: str, what: re.Pattern[str]) -> int:
    found = what.search(page, page.find("\n## "))
    return found.start() if found else -1


def anchors_of(document: str) -> list[str]:
    """The anchors of the headings, in order."""
    found: list[str] = []
    counts: Counter[str] = Counter()
    for line in _outside_blocks(document):
        if heading := re.match("#+ (.*)", line):
            anchor = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            found.append(f"{anchor}-{counts[anchor]}" if counts[anchor] else anchor)
            counts[anchor] += 1
    return found


def _outside_blocks(document: str) -> Iterator[str]:
    inside = False
    for line in document.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            yield line


def _documented_modules() -> set[str]:
    """The modules that the documents name."""
    texts = [
        path.read_text("utf-8") for path in [FOLDER.parent / "README.md", *FOLDER.glob("*.md")] if path != DOCUMENT
    ]
    named = {name for text in texts for name in re.findall(rf"\b{PACKAGE}(?:\.[a-z_]+)+", text)}
    return {name if is_module(name) else name.rpartition(".")[0] for name in named}


def _listed() -> Iterator[tuple[str, str]]:
    """The names of the page's sections, each with its module."""
    for modules in SECTIONS.values():
        for module, links in modules:
            for name in links:
                yield module, name


def _classes_in(module: str, node: ast.AST | None) -> set[str]:
    """The classes of the package that an annotation names."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node else set()
    return {name for name in names if (found := find(module, name)) and isinstance(found.node, ast.ClassDef)}


def _saver_methods() -> Iterator[tuple[Found, dict[str, Function]]]:
    """The classes that define the methods of every saver, with the methods."""
    for module, name in ((f"{PACKAGE}.saver", "CheckpointSaver"), (f"{PACKAGE}.threads", "ThreadMethods")):
        found = find(module, name)
        assert found is not None
        assert isinstance(found.node, ast.ClassDef)
        yield found, methods(found.node)


def _entry(module: str, name: str, link: tuple[str, str]) -> Iterator[str]:
    found = find(module, name)
    assert found, f"{module} has no {name}"
    node = found.node
    assert isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)), name
    is_error = isinstance(node, ast.ClassDef) and found.module == f"{PACKAGE}.errors"
    if is_error or name == "BrokenExport":
        assert isinstance(node, ast.ClassDef)
        written = f"{name}({', '.join(map(ast.unparse, node.bases))})"
    else:
        written = signature(found)
    line = summary(node)
    has_constructor = isinstance(node, ast.ClassDef) and any(
        isinstance(each, ast.FunctionDef) and each.name == "__init__" for each in node.body
    )
    if isinstance(node, ast.ClassDef) and has_constructor and (names := attributes(node)):
        line += f" Attributes: {', '.join(f'`{each}`' for each in names)}."
    yield from _lines([name], written, line, section(*link))
    if isinstance(node, ast.ClassDef) and name != "CheckpointSaver":
        yield from _methods(Found(found.module, node), node)


def _methods(found: Found, cls: ast.ClassDef) -> Iterator[str]:
    """The methods of a class, the async ones with the sync ones."""
    own = methods(cls)
    for name, node in own.items():
        if not _is_twin(name, own):
            yield from _lines(_twins(name, own), signature(Found(found.module, node)), summary(node), None, indent="  ")


def _methods_of_every_saver() -> Iterator[str]:
    yield "## Methods of every saver\n"
    own = {name: Found(cls.module, node) for cls, found in _saver_methods() for name, node in found.items()}
    for title, links in METHODS.items():
        yield f"### {title}\n"
        for name, link in links.items():
            node = own[name].node
            assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from _lines(_twins(name, own), signature(own[name]), summary(node), section(*link))
        yield ""
    names = ", ".join(f"`{name}`" for name in LANGGRAPHS)
    yield f"Savers have {names} from LangGraph's `BaseCheckpointSaver`, unchanged.\n"


def _twins(name: str, own: Any) -> list[str]:
    return [name, f"a{name}"] if f"a{name}" in own else [name]


def _is_twin(name: str, own: Any) -> bool:
    return name.startswith("a") and name[1:] in own


def _lines(names: list[str], text: str, line: str, link: str | None, indent: str = "") -> Iterator[str]:
    """An entry: names, what it is, a link; and the signature on a separate line."""
    first, *others = names
    head = ", ".join([f"**`{first}`**", *(f"`{name}`" for name in others)])
    yield _filled(f"{head}: {line}{f' {link}' if link else ''}", f"{indent}- ", f"{indent}  ") + "\\"
    yield _filled(f"`{text}`", f"{indent}  ", f"{indent}  ")


def _filled(text: str, first: str, others: str) -> str:
    return textwrap.fill(
        text, 119, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def _commands() -> Iterator[str]:
    yield "## Command line\n"
    yield "`lgckpt COMMAND`; [command-line.md](command-line.md) explains the options.\n"
    for name, command in COMMANDS.items():
        help_text = re.split(r"(?<=[.;]) ", " ".join((command.help or "").split("\n\n")[0].split()))[0].rstrip(";.")
        link = section("command-line.md", re.compile(rf"^ *lgckpt {name}(?![\w-])", re.MULTILINE))
        yield _filled(f"**`{name}`**: {help_text}. {link}", "- ", "  ")
    yield ""


def _types() -> Iterator[str]:
    """The aliases and option types in the signatures of the page, and in one another."""
    yield "## Types in the signatures\n"
    waiting = [
        (cls.module, name)
        for cls, own in _saver_methods()
        for each in own.values()
        for name in names_in_annotations(each)
    ]
    for module, name in _listed():
        found = find(module, name)
        assert found
        inner = methods(found.node).values() if isinstance(found.node, ast.ClassDef) else ()
        waiting += [(found.module, each) for node in (found.node, *inner) for each in names_in_annotations(node)]
    seen: dict[tuple[str, str], Found] = {}
    while waiting:
        module, name = waiting.pop(0)
        found = find(module, name)
        if found is None or (name, found.module) in seen:
            continue
        if isinstance(found.node, ast.ClassDef):
            if any(ast.unparse(each) == "TypedDict" or "Options" in ast.unparse(each) for each in found.node.bases):
                seen[name, found.module] = found
        elif not _is_type_variable(found):
            seen[name, found.module] = found
            waiting += [(found.module, each) for each in names_in_annotations(found.node)]
    counts = Counter(name for name, _ in seen)
    for (name, module), found in sorted(seen.items(), key=lambda each: (each[0][0].lower(), each[0][1])):
        node = found.node
        where = f" in `{module}`" if counts[name] > 1 else ""
        if isinstance(node, ast.ClassDef):
            yield _filled(f"**`{name}`**: {summary(node)}", "- ", "  ") + "\\"
            yield _filled(f"`{', '.join(_keys(found))}`", "  ", "  ")
        else:
            assert isinstance(node, (ast.Assign, ast.AnnAssign))
            yield _filled(f"**`{name}`**{where}: `{ast.unparse(node.value) if node.value else ''}`", "- ", "  ")
    yield ""


def _is_type_variable(found: Found) -> bool:
    return isinstance(found.node, (ast.Assign, ast.AnnAssign)) and isinstance(found.node.value, ast.Call)


def _keys(found: Found) -> list[str]:
    """The keys of a `TypedDict`; those of its base first, as names only."""
    node = found.node
    assert isinstance(node, ast.ClassDef)
    bases = [f"**{ast.unparse(base)}" for base in node.bases if ast.unparse(base) != "TypedDict"]
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return [*bases, *(f"{ast.unparse(each.target)}: {ast.unparse(each.annotation)}" for each in fields)]
