"""``RegisterPass``: marks a function.

The host that loads the file traces it, and registers the result.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import NoneType
from typing import Any, cast, overload

import numpy as np
import onnx

from gehost import CustomPassStage, PassSpec, PatternError, es

from .desc import InputSpec, ParamAttr
from .lower import TracedPass
from .program import Rule
from .readable import readable
from .scope import RegisterPassError, author_code, calling_module, mistake, origin
from .trace import origin_of, trace_pairs

REGISTERED = "__gehost_registered_passes__"
"""Under which a module keeps its rules, also those that another one of the name hides."""
Specs = Mapping[str, InputSpec | ParamAttr]


class RegisteredPass:
    """A registered rule.

    The function is traced when the rule is first asked for, not when its file is imported.
    """

    def __init__(
        self,
        name: str,
        module: str,
        where: es.Origin,
        trace: Callable[[], Rule],
        function: Callable[[], Any] | None = None,
        instances: Callable[[], Iterable[onnx.ModelProto]] | None = None,
    ) -> None:
        self.name = name
        self._instances = instances
        self._function = function
        self.module = module
        self.origin = where
        self._trace = trace

    def __call__(self) -> Any:
        """Call the function itself, which returns its pairs.

        Raises:
            PatternError: the rule was read from JSON, which has no function.
        """
        if self._function is None:
            raise mistake(f"{self.name} was read from JSON and has no function to call")
        return self._function()

    def __repr__(self) -> str:
        return f"<RegisteredPass {self.name} at {self.origin}>"

    def __str__(self) -> str:
        return readable(self.rule)

    @cached_property
    def rule(self) -> Rule:
        """The rule as data.

        Raises:
            PatternError: a function's signature or return value is wrong, or a pattern is not
                well-formed.
        """
        try:
            rule = self._trace()
            TracedPass(rule)
        except RegisterPassError:
            raise
        except PatternError as error:  # of the pattern that the host makes of it
            raise RegisterPassError(
                error.message, where=error.where, subject=error.subject, hint=error.hint
            ) from error
        return rule

    def spec(self) -> PassSpec:
        """How a host registers it; raises as ``rule`` does."""
        rule = self.rule
        return PassSpec(
            name=rule.name,
            stage=rule.stage,
            origin=str(rule.origin),
            kind="register_pass",
            factory=lambda: TracedPass(rule, self._instances),
            min_opset=rule.min_opset,
            max_opset=rule.max_opset,
            trusted=True,
            default=rule.default,
        )


def _plain(number: Any) -> Any:
    """One of numpy's integers as Python's."""
    if isinstance(number, np.integer):
        return operator.index(cast("np.integer[Any]", number))
    return number


@overload
def RegisterPass(function: Callable[[], Any], /) -> RegisteredPass: ...
@overload
def RegisterPass(
    *,
    input_specs: Specs | None = ...,
    stage: CustomPassStage = ...,
    name: str = ...,
    min_opset: int | None = ...,
    max_opset: int | None = ...,
    shape_proven: bool = ...,
    default: bool = ...,
    instances: Callable[[], Iterable[onnx.ModelProto]] | None = ...,
) -> Callable[[Callable[[], Any]], RegisteredPass]: ...
def RegisterPass(
    function: Any = None,
    /,
    *,
    input_specs: Specs | None = None,
    stage: CustomPassStage = CustomPassStage.kAfterInferShape,
    name: str = "",
    min_opset: int | None = None,
    max_opset: int | None = None,
    shape_proven: bool = False,
    default: bool = True,
    instances: Callable[[], Iterable[onnx.ModelProto]] | None = None,
) -> Any:
    """Register a function without parameters.

    It returns a pattern and a replace function, or an iterable of such pairs.

    Args:
        function: the function, when it is given by decoration.
        input_specs: the requirements of the patterns' arguments on their tensors, by name.
        stage: when the pass runs.
        name: default: the function's name.
        min_opset: below it the pass does not apply.
        max_opset: above it the pass does not apply.
        shape_proven: the construction, or the pattern's conditions, prove output sizes that the
            host cannot compare.
        default: False for a pass that runs only where ``--enable`` or a switch file names it.
        instances: gives models that the rule rewrites, for ``check-pass`` to check besides those
            that it draws.

    Raises:
        PatternError: it is no function, or takes parameters; or an argument of the decorator is
            of the wrong type.
    """
    where, module = origin(), calling_module()
    for what, value, kinds in (
        ("stage", stage, (CustomPassStage,)),
        ("name", name, (str,)),
        ("min_opset", _plain(min_opset), (int, NoneType)),
        ("max_opset", _plain(max_opset), (int, NoneType)),
        ("shape_proven", shape_proven, (bool,)),
        ("default", default, (bool,)),
    ):
        if type(value) not in kinds:
            raise mistake(
                f"{what} must be {' or '.join(kind.__name__ for kind in kinds)}, got {value!r}",
                where,
            )
    if instances is not None and not callable(instances):
        raise mistake(f"instances must be a function that returns models, got {instances!r}", where)
    specs: dict[Any, Any] = (
        dict(input_specs)
        if isinstance(input_specs, Mapping)
        else {"": input_specs}
        if input_specs
        else {}
    )
    if not all(
        isinstance(key, str) and isinstance(spec, InputSpec | ParamAttr)
        for key, spec in specs.items()
    ):
        raise mistake(
            (
                "input_specs must be a dict of an InputSpec or ParamAttr for each argument, "
                f"got {input_specs!r}"
            ),
            where,
        )

    def register(function: Any) -> RegisteredPass:
        if not inspect.isfunction(function):
            raise mistake(
                f"RegisterPass wants a function that returns (pattern, replace), got {function!r}",
                where,
            )
        at, called = origin_of(function, where), name or function.__name__
        parameters = inspect.signature(function).parameters
        if parameters:
            raise mistake(
                (
                    f"{function.__name__} takes parameters ({', '.join(parameters)}); a "
                    "registered function takes none"
                ),
                at,
            )

        def trace() -> Rule:
            with author_code(at):
                returned = function()
            return Rule(
                called,
                stage,
                at,
                trace_pairs(returned, specs, at),
                min_opset,
                max_opset,
                shape_proven,
                default,
            )

        registered = RegisteredPass(called, module, at, trace, function, instances)
        function.__globals__.setdefault(REGISTERED, []).append(registered)
        return registered

    return register if function is None else register(function)
