"""Flags of a command made from the fields of core/run_options: name, type, help text and panel."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from potluck.core.run_options import PANELS


def takes_flags(*kinds: type, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command with a flag for each field of these dataclasses; its keyword is None if it is not given."""
    fields = [field for kind in kinds for field in dataclasses.fields(kind) if field.name not in without]
    fields.sort(key=lambda field: PANELS.index(field.metadata["panel"]))

    def add(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)
        first = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        command.__signature__ = own.replace(parameters=[*first, *map(_flag, fields)])  # type: ignore[attr-defined]
        return command

    return add


def given(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags that the user gave."""
    return {name: value for name, value in flags.items() if value not in (None, [])}


def dashed(name: str) -> str:
    """An option's name as Potluck spells it: --mixed_precision is --mixed-precision."""
    return name.replace("_", "-")


def _flag(field: dataclasses.Field[Any]) -> inspect.Parameter:
    spelled = field.metadata["flags"].split() or [f"--{field.name.replace('_', '-')}"]
    information = typer.Option(
        *spelled,
        help=_help(field),
        rich_help_panel=field.metadata["panel"],
        show_default=False,
        hidden=field.metadata["is_hidden"],
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_typed(field.type) | None, information],
    )


def _typed(kind: Any) -> Any:
    """The type for typer: a choice is a plain string, since core/settings checks values of files and flags alike."""
    if get_origin(kind) is Literal:
        return str
    if get_origin(kind) is tuple:
        return list[str]
    return next((one for one in get_args(kind) if one is not type(None)), kind)


def _help(field: dataclasses.Field[Any]) -> str:
    """The field's help text, with its choices and its default where the text lacks them."""
    text = str(field.metadata["description"])
    if get_origin(field.type) is Literal:
        choices = [str(choice) for choice in get_args(field.type)]
        if all(choice in text for choice in choices):
            return text
        named = [f"{choice} (default)" if choice == field.default else choice for choice in choices]
        return f"{text[:-1]}: {', '.join(named[:-1])} or {named[-1]}."
    if isinstance(field.default, int | float) and not isinstance(field.default, bool):
        return f"{text[:-1]} ({field.default:g})."
    return text
