"""From a function or class written in a notebook cell to a file that works on its own.

The file holds the definition and what it uses: imports, plain constants, and the learner's other
functions and classes, wherever in the notebook they were written.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import linecache
import sys
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

PART_MODULE = "my_minikv_"  # a kept part is a module of this name, followed by its exercise
_HEADER = "from __future__ import annotations\n"
_LONGEST_CONSTANT = 2000  # characters
_ABSENT = object()
_READS_GLOBAL = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS")


class CannotKeep(Exception):
    """The definition cannot be written to a file of its own; the text says why and what to do."""


def is_definition(thing: object) -> bool:
    """Whether `thing` is something with source: a function or a class."""
    return inspect.isfunction(thing) or inspect.isclass(thing)


def is_learners(thing: object) -> bool:
    """Whether `thing` was written in a notebook or is one of the learner's kept parts."""
    module = str(getattr(thing, "__module__", ""))
    return is_definition(thing) and (module == "__main__" or module.startswith(PART_MODULE))


def files_of(thing: object) -> set[str]:
    """The files (notebook cells have one each, by name) that the code of `thing` stands in."""
    return {code.co_filename for code in _codes(thing)}


def standalone_source(thing: Any) -> str:
    """The source of a function or class together with everything that it needs from its notebook."""
    imports: dict[str, str] = {}
    constants: dict[str, str] = {}
    definitions: dict[str, str] = {}

    def need(name: str, value: Any) -> None:
        if name in definitions or name in imports or name in constants:
            return
        if value is thing or is_learners(value):
            definitions[name] = ""  # two functions may use each other
            text = _definition(value)
            namespace = _namespace(value)
            for other in _names_used(text):
                if other in namespace and namespace[other] is not getattr(builtins, other, _ABSENT):
                    need(other, namespace[other])
            del definitions[name]  # what it uses comes first
            definitions[name] = text if name == value.__name__ else f"{text}\n\n{name} = {value.__name__}"
        elif line := _import_line(name, value):
            imports[name] = line
        elif _is_plain(value):
            constants[name] = f"{name} = {value!r}"
        else:
            raise CannotKeep(
                f"it uses {name}, which is neither an import nor a function, a class or a plain constant. "
                "Take it as an argument, or make it inside your code."
            )

    need(thing.__name__, thing)
    blocks = ["\n".join(sorted(imports.values())), "\n".join(constants.values())]
    blocks = [f"{block}\n" for block in blocks if block]
    return "\n".join([_HEADER, *blocks, *(f"\n{text}\n" for text in definitions.values())])


def _definition(thing: Any) -> str:
    """The lines of `def` or `class`, decorators included, from the cell or file they were written in."""
    if "<locals>" in thing.__qualname__:
        raise CannotKeep("it is defined inside another function. Define it at the top of a cell.")
    for text, line in _places(thing):
        for node in ast.walk(_parsed(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
                last = node.end_lineno or node.lineno
                if node.name == thing.__name__ and (line is None or first <= line <= last):
                    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : last]))
    raise CannotKeep(f"its source was not found. Write it as `def` or `class` {thing.__name__} in a cell.")


def _places(thing: Any) -> Iterator[tuple[str, int | None]]:
    """Where to look for a definition: texts, with a line inside of it where that is known."""
    for code in _codes(thing):
        lines = linecache.getlines(code.co_filename)
        if lines:
            yield "".join(lines), code.co_firstlineno
    if isinstance(thing, type):  # a class without methods of its own: search the cells, newest first
        cells = getattr(sys.modules.get("__main__"), "In", None)
        for cell in reversed(cells if isinstance(cells, list) else []):
            yield str(cell), None


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module([], [])


def _codes(thing: Any) -> Iterator[CodeType]:
    """The code of a function, or of the methods that a class defines itself."""
    if isinstance(thing, type):
        for value in vars(thing).values():
            if isinstance(value, property):
                value = value.fget
            elif isinstance(value, classmethod | staticmethod):
                value = value.__func__
            method = inspect.unwrap(value) if callable(value) else None
            if isinstance(method, FunctionType) and method.__qualname__.startswith(f"{thing.__qualname__}."):
                yield method.__code__
    elif callable(thing):
        function = inspect.unwrap(thing)
        if isinstance(function, FunctionType):
            yield function.__code__


def _namespace(thing: Any) -> dict[str, Any]:
    if isinstance(thing, FunctionType):
        function: FunctionType = inspect.unwrap(thing)
        return function.__globals__
    module = sys.modules.get(thing.__module__)
    return dict(vars(module)) if module else {}


def _names_used(text: str) -> list[str]:
    """The global names that a definition reads, in sorted order; annotations do not count."""

    def walk(code: CodeType) -> Iterator[str]:
        steps = list(dis.get_instructions(code))
        stored = {step.argval for step in steps if step.opname == "STORE_NAME"}
        for step in steps:
            if step.opname in _READS_GLOBAL and step.argval not in stored:
                yield step.argval
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from walk(constant)

    code = compile(_HEADER + text, "<part>", "exec", dont_inherit=True)
    return sorted(set(walk(code)))


def _import_line(name: str, value: Any) -> str | None:
    """The import that gives `value` under `name`, if there is one."""
    if isinstance(value, ModuleType):
        return f"import {name}" if value.__name__ == name else f"import {value.__name__} as {name}"
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None) or name
    if not isinstance(module, str) or module == "__main__" or "." in qualname:
        return None
    if getattr(sys.modules.get(module), qualname, None) is not value:
        return None
    return f"from {module} import {qualname}" + ("" if qualname == name else f" as {name}")


def _is_plain(value: Any) -> bool:
    """Whether writing the value down and reading it again gives the same."""
    text = repr(value)
    try:
        return len(text) <= _LONGEST_CONSTANT and bool(ast.literal_eval(text) == value)
    except (ValueError, SyntaxError):
        return False
