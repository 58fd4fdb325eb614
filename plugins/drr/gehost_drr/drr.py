"""``rule``: define a rule by a function of its two patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import onnx

from gehost import CustomPassStage, VariadicPattern, es
from gehost_drr.patterns import DrrPatternContext, attr
from gehost_drr.rule import DrrRule

__all__ = ["attr", "rule"]

DEFINED = "__gehost_drr_rules__"
"""Under which a module keeps the rules of its functions, with their names: a second function of
a name hides the first.
"""


def rule(
    *,
    name: str = "",
    benefit: int = 1,
    labels: Iterable[str] = (),
    stage: CustomPassStage = CustomPassStage.kAfterInferShape,
    min_opset: int | None = None,
    max_opset: int | None = None,
    shape_proven: bool = False,
    default: bool = True,
    instances: Callable[[], Iterable[onnx.ModelProto]] | None = None,
    any_number_of: str = "",
    least: int = 1,
) -> Callable[[Callable[..., Any]], DrrRule]:
    """Define a rule by a function of source and result pattern.

    The function is called at once.

    Args:
        name: default: the function's name.
        benefit: of the rules of a file or set, those with more are tried first.
        labels: by which a set can leave rules out.
        stage: when it runs as a pass of its own.
        min_opset: below it the rule does not apply.
        max_opset: above it the rule does not apply.
        shape_proven: the rule proves output sizes that the host cannot compare.
        default: False for a rule that runs only where ``--enable`` or a switch file names it.
        instances: gives models that the rule rewrites, for ``check-pass`` to check besides those
            that it draws.
        any_number_of: an operator of the source with any number of inputs or outputs. The function
            is then called for each number that a graph has, as a third argument.
        least: the smallest number.

    Raises:
        PatternError: the rule is not well-formed; names the file and line at fault.
    """

    def define(function: Callable[..., Any]) -> DrrRule:
        code = function.__code__

        def of(*number: int) -> DrrRule:
            context = DrrPatternContext()
            pattern = context.SourcePattern()
            function(pattern, pattern.ResultPattern(), *number)
            return DrrRule.defined(
                name or function.__name__,
                es.Origin(code.co_filename, code.co_firstlineno),
                function.__module__,
                context,
                benefit=benefit,
                labels=labels,
                stage=stage,
                min_opset=min_opset,
                max_opset=max_opset,
                shape_proven=shape_proven,
                default=default,
                instances=instances,
            )

        if any_number_of:
            by_number = cache(of)
            with es.written_at(es.Origin(code.co_filename, code.co_firstlineno)):
                variadic = VariadicPattern(
                    any_number_of, lambda number: by_number(number).pattern, least=least
                )
            result = replace(by_number(least), of=by_number, variadic=variadic)
        else:
            result = of()
        if function.__qualname__ == function.__name__:
            function.__globals__.setdefault(DEFINED, []).append((function.__name__, result))
        return result

    return define
