"""The host's own plugin: classes marked with ``REG_FUSION_PASS`` and ``REG_DECOMPOSE_PASS``, and GE's operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

from gehost.errors import VendorError
from gehost.host.hookspecs import hookimpl
from gehost.host.registry import PassRegistry, PassSpec
from gehost.ops import OpRegistry
from gehost.passes.base import DecomposePass, FusionBasePass, PatternFusionPass, missing_hooks
from gehost.passes.mark import PassMark, mark_of


@hookimpl
def gehost_collect_passes(module: ModuleType, registry: PassRegistry) -> None:
    """Register the classes that this module, or a module of this package, marked; imported ones
    are somebody else's.
    """
    for found in dict.fromkeys(value for value in vars(module).values() if isinstance(value, type)):
        mark = mark_of(found)
        if mark is not None and f"{mark.module}.".startswith(f"{module.__name__}."):
            registry.add(pass_spec(found, mark))


@hookimpl(trylast=True)
def gehost_register_ops(registry: OpRegistry) -> None:
    """Add GE's operators that no vendor file and no plugin declares."""
    from gehost.host import ge_operators

    registry.add_marked(vars(ge_operators), replace=False)


def _factory(cls: type[FusionBasePass], mark: PassMark) -> Callable[[], FusionBasePass]:
    """A decompose pass whose constructor takes the operators gets those of its registration."""
    if not issubclass(cls, DecomposePass) or cls.__init__ is DecomposePass.__init__:
        return cls
    parameters = list(inspect.signature(cls).parameters.values())
    if parameters and (
        parameters[0].name == "op_types" or parameters[0].default is inspect.Parameter.empty
    ):
        return lambda: cls(list(mark.op_types))
    return cls


def pass_spec(cls: type[FusionBasePass], mark: PassMark) -> PassSpec:
    """The registration of a marked class.

    Raises:
        VendorError: the class does not define a hook that it must.
    """
    missing = missing_hooks(cls)
    if missing:
        raise VendorError(f"{mark.origin}: {cls.__name__} does not define {' and '.join(missing)}")
    return PassSpec(
        name=mark.name,
        stage=mark.stage,
        origin=mark.origin,
        kind=cls.kind,
        factory=_factory(cls, mark),
        min_opset=mark.min_opset,
        max_opset=mark.max_opset,
        trusted=issubclass(cls, PatternFusionPass | DecomposePass)
        and cls.Run in (PatternFusionPass.Run, DecomposePass.Run),
        default=mark.default,
        options=mark.options,
    )
