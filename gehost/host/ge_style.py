"""The plugin that claims classes marked with ``REG_FUSION_PASS`` and ``REG_DECOMPOSE_PASS``."""

from __future__ import annotations

from types import ModuleType

from gehost.errors import VendorError
from gehost.host.hookspecs import hookimpl
from gehost.host.registry import PassRegistry, PassSpec
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
        factory=cls,
        min_opset=mark.min_opset,
        max_opset=mark.max_opset,
        trusted=issubclass(cls, PatternFusionPass | DecomposePass)
        and cls.Run in (PatternFusionPass.Run, DecomposePass.Run),
        default=mark.default,
        options=mark.options,
    )
