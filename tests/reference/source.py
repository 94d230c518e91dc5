"""Reads names, signatures and docstrings from the source, so that no optional package has to be installed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import langgraph_checkpoint_custom

NAME = langgraph_checkpoint_custom.__name__
ROOT = Path(langgraph_checkpoint_custom.__file__).parent
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.Assign | ast.AnnAssign


class Found(NamedTuple):
    """A definition, and the module that it is in."""

    module: str
    node: Definition


@cache
def module_of(name: str) -> ast.Module:
    """The syntax tree of a module of the package."""
    path = ROOT.joinpath(*name.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text("utf-8"))


def is_module(name: str) -> bool:
    """Whether the package has a module with this full name."""
    path = ROOT.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def find(module: str, name: str) -> Found | None:
    """The definition of a name, in the module or where the module imports it from; None if it is not in the package."""
    for node in _statements(module_of(module).body):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return Found(module, node)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return Found(module, node)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return Found(module, node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(NAME):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find(node.module or "", alias.name)
    return None


def public_names(module: str) -> list[str]:
    """`__all__`, or otherwise the classes and functions that a module defines; what a decorator makes is internal."""
    listed: list[str] = []
    for node in _statements(module_of(module).body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, (ast.Assign, ast.AugAssign)) and [ast.unparse(each) for each in targets if each] == [
            "__all__"
        ]:
            listed += ast.literal_eval(node.value)
    if listed:
        return listed
    return [
        node.name
        for node in module_of(module).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and not node.name.startswith("_")
        and not any(
            isinstance(each, ast.Call) and ast.unparse(each.func) == "operation" for each in node.decorator_list
        )
    ]


def methods(cls: ast.ClassDef) -> dict[str, Function]:
    """The public methods and properties that a class defines itself."""
    found = {node.name: node for node in cls.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return {name: node for name, node in found.items() if not name.startswith("_")}


def summary(node: Function | ast.ClassDef) -> str:
    """The first line of the docstring."""
    text = ast.get_docstring(node)
    assert text, f"{node.name} has no docstring"
    return text.partition("\n")[0]


def attributes(node: ast.ClassDef) -> list[str]:
    """The names in the section `Attributes:` of the docstring."""
    section = (ast.get_docstring(node) or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    lines = section.splitlines()
    return [line.split(":")[0].strip() for line in lines if line.startswith("    ") and not line.startswith("     ")]


def signature(found: Found, name: str | None = None) -> str:
    """A function's signature, or that of a class: its constructor's, or its fields."""
    node = found.node
    name = name or str(getattr(node, "name", ""))
    if isinstance(node, ast.ClassDef):
        constructors = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        if constructors:
            return f"{name}({_arguments(found.module, constructors[0])})"
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
        base = None if fields or not node.bases else find(found.module, ast.unparse(node.bases[0]))
        return signature(base, name) if base else f"{name}({', '.join(map(_field, fields))})"
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    if any(ast.unparse(each) == "property" for each in node.decorator_list):
        return f"{name}: {ast.unparse(node.returns)}" if node.returns else name
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    awaited = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{awaited}{name}({_arguments(found.module, node)}){returns}"


def names_in_annotations(node: ast.AST) -> Iterator[str]:
    """The names in the annotations of a function, a class's constructor or fields, or in an alias."""
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                yield from names_in_annotations(each)
            elif isinstance(each, ast.AnnAssign):
                yield from _names(each.annotation)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        all_of_them = (
            *node.args.posonlyargs,
            *node.args.args,
            *node.args.kwonlyargs,
            node.args.vararg,
            node.args.kwarg,
        )
        for argument in all_of_them:
            if argument is not None and argument.annotation:
                yield from _names(argument.annotation)
        if node.returns:
            yield from _names(node.returns)
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
        yield from _names(node.value)


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also inside `if` and `try`."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from _statements(node.body)


def _arguments(module: str, node: Function) -> str:
    """The arguments without the first one of a method; constants have their values."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults]
    pairs = list(zip(plain, defaults, strict=True))
    if pairs and pairs[0][0].arg in ("self", "cls"):
        del pairs[0]
    written = [_argument(module, *pair) for pair in pairs]
    if arguments.vararg:
        written.append(f"*{_argument(module, arguments.vararg)}")
    elif arguments.kwonlyargs:
        written.append("*")
    written += [_argument(module, *pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        written.append(f"**{_argument(module, arguments.kwarg)}")
    return ", ".join(written)


def _argument(module: str, argument: ast.arg, default: ast.expr | None = None) -> str:
    text = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    constant = find(module, default.id) if isinstance(default, ast.Name) else None
    value = constant.node.value if constant and isinstance(constant.node, ast.Assign) else default
    return f"{text} = {ast.unparse(value)}"


def _field(node: ast.AnnAssign) -> str:
    text = f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
    if node.value is None:
        return text
    made = isinstance(node.value, ast.Call) and next((each.value for each in node.value.keywords), None)
    value = f"{ast.unparse(made)}()" if isinstance(made, ast.Name) else "…" if made else ast.unparse(node.value)
    return f"{text} = {value}"
