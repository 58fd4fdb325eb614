"""Registration: descriptors of pass classes, by module, class and name."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from enum import Enum, EnumMeta
from types import ModuleType
from typing import Any

from gehost import CustomPassStage, es

DESCRIPTOR = "__ge_pass_descriptor__"
REGISTERED = "__ge_registered_passes__"
"""Name of a module's list of the descriptors of its classes, in order."""


class _StageNames(EnumMeta):
    def __getattr__(cls, name: str) -> object:
        """Raises ``AttributeError`` with the stages."""
        listing = ", ".join(cls.__members__)
        raise AttributeError(f"there is no stage {name}; stages: {listing}")


class PassStage(Enum, metaclass=_StageNames):
    """When a pass runs."""

    BEFORE_INFER_SHAPE = "BEFORE_INFER_SHAPE"
    AFTER_INFER_SHAPE = "AFTER_INFER_SHAPE"
    AFTER_BUILTIN_FUSION_PASS = "AFTER_BUILTIN_FUSION_PASS"  # noqa: S105 - no password
    AFTER_ORIGIN_GRAPH_OPTIMIZE = "AFTER_ORIGIN_GRAPH_OPTIMIZE"

    @property
    def host_stage(self) -> CustomPassStage:
        return _STAGES[self]


_STAGES = {
    PassStage.BEFORE_INFER_SHAPE: CustomPassStage.kBeforeInferShape,
    PassStage.AFTER_INFER_SHAPE: CustomPassStage.kAfterInferShape,
    PassStage.AFTER_BUILTIN_FUSION_PASS: CustomPassStage.kAfterBuiltinFusionPass,
    PassStage.AFTER_ORIGIN_GRAPH_OPTIMIZE: CustomPassStage.kAfterOriginGraphOptimize,
}


@dataclass(frozen=True)
class PassDescriptor:
    """A registered pass class."""

    name: str
    stage: PassStage
    kind: str
    """``pattern_fusion``, ``fusion_base`` or ``decompose``."""
    module: str
    class_name: str
    op_types: tuple[str, ...] = ()
    cls: type[Any] = field(default=object, repr=False, compare=False)
    origin: es.Origin = field(default_factory=lambda: es.Origin("", 0), repr=False, compare=False)

    @property
    def key(self) -> str:
        return f"{self.module}:{self.class_name}:{self.name}"


_registered: dict[str, PassDescriptor] = {}


def register(descriptor: PassDescriptor) -> None:
    """Keep a descriptor, also in the module of its class, from which a host takes it.

    A file that is loaded again registers its classes again. The host refuses two passes of one
    name.
    """
    setattr(descriptor.cls, DESCRIPTOR, descriptor)
    _registered[descriptor.key] = descriptor
    vars(sys.modules[descriptor.module]).setdefault(REGISTERED, []).append(descriptor)


def registered_in(module: ModuleType) -> list[PassDescriptor]:
    """Return the descriptors of a module or package, in order of registration."""
    parts = [module]
    if hasattr(module, "__path__"):  # a package
        inside = f"{module.__name__}."
        parts += [part for name, part in sys.modules.items() if name.startswith(inside)]
    return [descriptor for part in parts for descriptor in vars(part).get(REGISTERED, ())]


def get_registered_passes() -> list[PassDescriptor]:
    """Return the descriptors of all passes, in order of registration."""
    return list(_registered.values())


def get_registered_pass_dicts() -> list[dict[str, Any]]:
    """Return the descriptors as dicts of texts."""
    return [
        {
            **{name: value for name, value in asdict(result).items() if name not in _OBJECTS},
            "stage": result.stage.name,
            "op_types": list(result.op_types),
            "descriptor_key": result.key,
        }
        for result in _registered.values()
    ]


_OBJECTS = ("cls", "origin")


def get_registered_pass_by_descriptor_key(key: str) -> PassDescriptor | None:
    """Return the descriptor of ``module:class:name``, or None."""
    return _registered.get(key)


def clear_registered_passes() -> None:
    """Forget all passes; a host that loaded them keeps its own."""
    _registered.clear()
