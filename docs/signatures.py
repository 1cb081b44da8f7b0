"""The signatures of the reference pages: those that `inspect.signature` returns.

The sources alone do not have them: a collator inherits fields of a dataclass of
transformers or TRL. `signatures.json` has the signature of each documented name;
tests/packaging/test_public_surface.py compares and writes it.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import griffe

RECORDED: dict[str, str] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)["signatures"]


class RealSignatures(griffe.Extension):
    """Gives functions and classes the recorded parameters."""

    def on_package(
        self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any
    ) -> None:
        """Called before griffe makes an `__init__` for each dataclass that has none."""
        if pkg.name != "quadrat":
            return
        loader.resolve_aliases(implicit=True)
        for path, signature in RECORDED.items():
            entry = pkg[path.removeprefix("quadrat.")]
            entry = entry.final_target if entry.is_alias else entry
            parsed = parameters(signature, entry.parameters)
            if isinstance(entry, griffe.Class):
                init = griffe.Function("__init__", parameters=parsed, parent=entry)
                if "__init__" in entry.members:
                    init.docstring = entry.members["__init__"].docstring
                entry.members["__init__"] = init
            else:
                entry.parameters = parsed


def parameters(signature: str, written: griffe.Parameters) -> griffe.Parameters:
    """The parameters of a signature, with the types of the sources if they have any."""
    types = {
        parameter.name: parameter.annotation
        for parameter in written
        if parameter.annotation is not None
    }
    function = ast.parse(f"def function{signature}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    groups = (
        (griffe.ParameterKind.positional_only, arguments.posonlyargs, defaults),
        (
            griffe.ParameterKind.positional_or_keyword,
            arguments.args,
            defaults[len(arguments.posonlyargs) :],
        ),
        (griffe.ParameterKind.var_positional, [arguments.vararg], [None]),
        (
            griffe.ParameterKind.keyword_only,
            arguments.kwonlyargs,
            arguments.kw_defaults,
        ),
        (griffe.ParameterKind.var_keyword, [arguments.kwarg], [None]),
    )
    return griffe.Parameters(
        *(
            griffe.Parameter(
                argument.arg,
                kind=kind,
                annotation=types.get(
                    argument.arg,
                    argument.annotation and ast.unparse(argument.annotation),
                ),
                default=default and ast.unparse(default),
            )
            for kind, these, values in groups
            for argument, default in zip(these, values, strict=False)
            if argument is not None
        )
    )
