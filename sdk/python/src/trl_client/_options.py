"""The keyword arguments of ``session``, ``run`` and ``stream``, as generated from the contract."""

from __future__ import annotations

import inspect
import os
from typing import Any, Callable, Dict, Mapping, Type, TypeVar

from . import _types as types
from ._wire import Json, encode_bytes, milliseconds

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS_TYPES: Dict[str, Type[Any]] = {
    "session": types.SessionOptions,
    "run": types.RunOptions,
    "stream": types.StreamOptions,
    "start": types.StreamOptions,
}

# SAME_OPTIONS names the function of the contract whose options another one takes.
SAME_OPTIONS = {"start": "stream"}


def params_of(function: str, options: Mapping[str, Any]) -> Json:
    """Returns keyword arguments as params of the method; raises ``TypeError`` for an unknown one."""
    table = types.OPTIONS[SAME_OPTIONS.get(function, function)]
    for name in options:
        if name not in table and name != "call_timeout":
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    params: Json = {}
    for name, (param, conversion) in table.items():
        if options.get(name) is not None:
            params.update(convert(param, conversion, options[name]))
    return params


def convert(param: str, conversion: str, value: Any) -> Json:
    """Returns the params that one argument sets. A conversion is named by the generator of ``_types``."""
    if conversion == "bytes":
        text, encoding = encode_bytes(value)
        return {param: text, param + "_encoding": encoding} if encoding else {param: text}
    if conversion == "flag":  # False is left out: an older daemon may not know the param
        return {param: value} if value else {}
    return {param: CONVERSIONS[conversion](value) if conversion else value}


CONVERSIONS: Dict[str, Callable[[Any], Any]] = {
    "milliseconds": milliseconds,
    "path": os.fspath,
    "list": list,
    "dict": dict,
}


def documented(function: F) -> F:
    """Shows the options of a function with ``**options`` to ``help``, ``inspect.signature`` and ``get_type_hints``.

    The function itself stays as it is: ``params_of`` checks the names when it is called.
    """
    options = OPTIONS_TYPES[function.__name__]
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    hints = options.__annotations__
    for name, hint in hints.items():
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint))
    setattr(function, "__signature__", signature.replace(parameters=parameters))
    own = {name: hint for name, hint in function.__annotations__.items() if name != "options"}
    function.__annotations__ = {**own, **hints}
    if function.__doc__ and options.__doc__:  # python -OO has neither
        listed = inspect.cleandoc(options.__doc__).partition("\n\n")[2]
        function.__doc__ = inspect.cleandoc(function.__doc__) + "\n\n" + listed
    return function
