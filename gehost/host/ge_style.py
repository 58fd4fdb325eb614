"""The host's own plugin for GE-style registration.

It collects classes marked with ``REG_FUSION_PASS`` and ``REG_DECOMPOSE_PASS``, and declares GE's
operators.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

from gehost.errors import VendorError
from gehost.host.hookspecs import hookimpl
from gehost.host.registry import PassRegistry, PassSpec
from gehost.host.vendors import is_inside, modules_of
from gehost.ops import OpRegistry
from gehost.passes.base import (
    DecomposePass,
    FusionBasePass,
    PatternFusionPass,
    method_problem,
    missing_methods,
)
from gehost.passes.registration import MARKED, PassRegistration, mark_of

_MARK = "put @REG_FUSION_PASS or @REG_DECOMPOSE_PASS above it, or a _ in front of its name"
_IMPORT = "import it in the __init__.py of its package; classes imported there are registered"
_MOVE = "move it to a file whose name does not start with _, which is loaded for its passes"
_BASES = (FusionBasePass, PatternFusionPass, DecomposePass)


@hookimpl
def gehost_collect_passes(module: ModuleType, registry: PassRegistry) -> None:
    """Register the marked classes of a module.

    The module defines them, or imports them from its own package.
    """
    imported = {value for value in vars(module).values() if isinstance(value, type)}
    for part in modules_of(module):
        inside = is_inside(part, module)
        marked: list[type[FusionBasePass]] = vars(part).get(MARKED, [])
        for cls in marked:
            mark = mark_of(cls)
            if mark is not None and (part is module or (inside and cls in imported)):
                registry.add(pass_spec(cls, mark))
            else:
                registry.suspect(cls, _IMPORT if inside else _MOVE)
        for var in vars(part).values():
            if (
                isinstance(var, type)
                and issubclass(var, FusionBasePass)
                and var.__module__ == part.__name__
                and mark_of(var) is None
                and (not missing_methods(var) or method_problem(var, _BASES) is not None)
            ):
                registry.suspect(var, _MARK)


@hookimpl(trylast=True)
def gehost_register_ops(registry: OpRegistry) -> None:
    """Add GE's operators, unless a vendor file or a plugin declares them."""
    from gehost.host import ge_operators

    registry.add_marked(vars(ge_operators), replace=False)


def _factory(cls: type[FusionBasePass], mark: PassRegistration) -> Callable[[], FusionBasePass]:
    """Return a factory of the pass.

    It passes ``op_types`` to a constructor that takes them.
    """
    if not issubclass(cls, DecomposePass) or cls.__init__ is DecomposePass.__init__:
        return cls
    parameters = list(inspect.signature(cls).parameters.values())
    if parameters and (
        parameters[0].name == "op_types" or parameters[0].default is inspect.Parameter.empty
    ):
        return lambda: cls(list(mark.op_types))
    return cls


def pass_spec(cls: type[FusionBasePass], mark: PassRegistration) -> PassSpec:
    """The registration of a marked class.

    Raises:
        VendorError: a method that it must define is absent, misspelled or async.
    """
    problem = method_problem(cls, _BASES)
    if problem is not None:
        raise VendorError(problem, where=mark.origin)
    missing = missing_methods(cls)
    if missing:
        raise VendorError(
            f"{cls.__name__} does not define {' and '.join(missing)}", where=mark.origin
        )
    return PassSpec(
        name=mark.name,
        stage=mark.stage,
        origin=mark.origin,
        kind=cls.rewrite_kind,
        factory=_factory(cls, mark),
        min_opset=mark.min_opset,
        max_opset=mark.max_opset,
        trusted=issubclass(cls, PatternFusionPass | DecomposePass)
        and cls.Run in (PatternFusionPass.Run, DecomposePass.Run),
        default=mark.default,
        options=mark.options,
    )
