"""RegisterPass: a rewrite as a pair of Python functions, which are traced.

A function under ``@RegisterPass`` returns a pattern function and a replace function. Both are
called once with tensors that stand for those of a match; their calls are recorded as a rule.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gehost import hookimpl

if TYPE_CHECKING:  # the command line loads plugins before it knows whether it needs them at all
    from gehost import PassRegistry, StyleRegistry

    from .desc import InputSpec, MappedPattern, OpDesc, ParamAttr, PassDesc, Tensor, op
    from .register import RegisteredPass, RegisterPass
    from .serial import from_json, to_json
    from .symbols import Symbol, native

__all__ = [
    "InputSpec",
    "MappedPattern",
    "OpDesc",
    "ParamAttr",
    "PassDesc",
    "RegisterPass",
    "RegisteredPass",
    "Symbol",
    "Tensor",
    "from_json",
    "native",
    "op",
    "to_json",
]

_HOMES = {
    **dict.fromkeys(
        ("InputSpec", "MappedPattern", "OpDesc", "ParamAttr", "PassDesc", "Tensor", "op"), "desc"
    ),
    **dict.fromkeys(("RegisterPass", "RegisteredPass"), "register"),
    **dict.fromkeys(("from_json", "to_json"), "serial"),
    **dict.fromkeys(("Symbol", "native"), "symbols"),
}


@hookimpl
def gehost_collect_passes(module: ModuleType, registry: PassRegistry) -> None:
    """Register functions that this module or its package's modules marked.

    Imported ones belong to other vendors.
    """
    if "gehost_register_pass.register" not in sys.modules:  # no module can have marked a function
        return
    from .register import REGISTERED, RegisteredPass

    named = [item for item in vars(module).values() if isinstance(item, RegisteredPass)]
    marked: list[RegisteredPass] = [*vars(module).get(REGISTERED, ()), *named]
    for item in dict.fromkeys(marked):
        if f"{item.module}.".startswith(f"{module.__name__}."):
            registry.add(item.spec())


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gehost_register_pass' has no attribute {name!r}")
    member = globals()[name] = getattr(
        importlib.import_module(f"gehost_register_pass.{home}"), name
    )
    return member


@hookimpl
def gehost_register_styles(registry: StyleRegistry) -> None:
    """Let ``gehost new --from`` write passes in this style."""
    from importlib.resources import files

    template = files(__name__) / "new_pass.py.jinja"
    registry.add("traced", template.read_text(encoding="utf-8"), by_function=True)
