"""Kernels of runtimes: which operators run where, in which types, within which limits.

Packages that ship vendors may hold a table, ``kernels.toml``; ``find`` reads all of them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from gehost.errors import UsageError, VendorError
from gehost.ir.types import DataType
from gehost.shipped import shipped_files
from gehost.spelling import hint

__all__ = ["Kernel", "Target", "find", "kernels"]

_TABLE = "kernels.toml"
_TARGET = re.compile(r"(?P<provider>[a-z]\w*)(:(?P<version>\d+(\.\d+)*))?")


@dataclass(frozen=True)
class Kernel:
    """A kernel of one operator in one provider of a runtime, from one release on."""

    operator: str
    """``domain::Type``, or ``Type`` for ONNX's own."""
    runtime: str
    provider: str
    since: str
    """The first release, until that of the next row."""
    types: Mapping[str, str]
    """By numpy's name of the type: ``own``, ``casts`` (computed in float32) or ``parts`` (the
    runtime runs the operator's function body). Other types do not load.
    """
    inside: str = ""
    """The type in which it computes, "" if that is not known."""
    source: str = ""
    """``measured`` or ``read``."""
    note: str = ""
    float32_inputs: Sequence[int] = ()
    """Inputs that are float32 whatever the type of the others."""
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Sizes and forms of inputs that it takes, by what they limit."""
    empty: str = ""
    """The first release that takes empty tensors where older ones end the process; "": all do."""
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    """By attribute, the first release that reads it as the operator's definition does."""

    def ends_at_empty(self, version: str) -> bool:
        """Whether the kernel of a release ends the process at empty tensors."""
        return bool(self.empty) and not _holds(self.empty, version)

    def misread(self, attributes: Iterable[str], version: str) -> list[str]:
        """Return the attributes that a release reads otherwise than the operator's definition."""
        return [
            name
            for name in attributes
            if name in self.attributes and not _holds(self.attributes[name], version)
        ]


@dataclass(frozen=True)
class Target:
    """What a compiled file is for: a provider, and perhaps a release of its runtime."""

    provider: str = ""
    """"" where none is named: the CPU."""
    version: str = ""
    half: bool = False
    """Whether the compiled model becomes float16."""
    float32: frozenset[str] = frozenset()
    """Operators that stay in float32 then, as ``domain::Type`` or ``Type``."""

    @classmethod
    def of(cls, text: str) -> Target:
        """Read ``PROVIDER`` or ``PROVIDER:VERSION``; "" names none.

        Raises:
            UsageError: it is spelled otherwise, or no table has the provider.
        """
        if not text:
            return cls()
        parts = _TARGET.fullmatch(text)
        providers = {kernel.provider for kernel in kernels()}
        if parts is None:
            raise UsageError(f'target "{text}": wanted PROVIDER or PROVIDER:VERSION, as cuda:1.24')
        if parts["provider"] not in providers:
            listing = f"; there are {', '.join(sorted(providers))}"
            listing = hint(parts["provider"], providers) or listing
            raise UsageError(f'target "{text}": no table of kernels has this provider{listing}')
        return cls(parts["provider"], parts["version"] or "")

    def in_half(self, float32: Iterable[str] = ()) -> Target:
        """Return this target for a model that becomes float16 after its fusions.

        Args:
            float32: operators that stay in float32.
        """
        return replace(self, half=True, float32=frozenset(float32))

    def in_file(self, dtype: DataType | None, operator: str) -> DataType | None:
        """Return the type in which an operator of the compiled model runs in the file."""
        stays = operator in self.float32 or operator.rpartition("::")[2] in self.float32
        return DataType.FLOAT16 if self.half and dtype == DataType.FLOAT and not stays else dtype

    def kernel(self, operator: str, dtype: DataType | None, runtime: str) -> Kernel | None:
        """Return the kernel of an operator for a type, None where the target has none.

        The type is that of the compiled model, which ``in_file`` may be another one.

        Where no target is named, it is the CPU's; but cuda's for types that the CPU does not even
        multiply (bfloat16), since no file with them runs there.
        """
        dtype = self.in_file(dtype, operator)
        if self.provider:
            return find(
                operator, dtype, runtime=runtime, provider=self.provider, version=self.version
            )
        multiplies = find("MatMul", dtype, runtime=runtime, provider="cpu") is not None
        return find(operator, dtype, runtime=runtime, provider="cpu" if multiplies else "cuda")

    def why_not(
        self,
        operator: str,
        dtype: DataType | None,
        runtime: str,
        *,
        empty: bool = False,
        attributes: Iterable[str] = (),
    ) -> str:
        """Return why the target has no kernel of an operator for a type, or "".

        Args:
            operator: as in ``find``.
            dtype: of its first input.
            runtime: its name.
            empty: whether a size of its first input may be 0.
            attributes: those that it has.
        """
        kernel = self.kernel(operator, dtype, runtime)
        if kernel is not None:
            for name in kernel.misread(attributes, self.version) if self.version else ():
                return (
                    f"{name}: {runtime} reads it so from {kernel.attributes[name]} on, "
                    f"the target is {self}"
                )
            if not (empty and self.version and kernel.ends_at_empty(self.version)):
                return ""
            return (
                f"empty: its input may be empty, which {runtime} {kernel.empty} and newer take; "
                "--dim fixes a size"
            )
        dtype = self.in_file(dtype, operator)
        name = str(dtype) if dtype else "an unknown type"
        others = sorted(
            {
                row.provider
                for row in kernels()
                if (row.operator, row.runtime) == (operator, runtime)
                and dtype
                and find(operator, dtype, runtime=runtime, provider=row.provider)
            }
        )
        release = f" {self.version}" if self.version else ""
        elsewhere = f"; --target {' or '.join(others)} has one" if others else ""
        return (
            f"kernel: {runtime}{release} has none of {operator} for {name} on "
            f"{self.provider or 'cpu'}{elsewhere}"
        )

    def __str__(self) -> str:
        return f"{self.provider or 'cpu'}{self.version and f':{self.version}'}"


NO_TARGET = Target()


def find(
    operator: str, dtype: DataType | None, *, runtime: str, provider: str, version: str = ""
) -> Kernel | None:
    """Return the kernel of an operator for a type; None where none loads.

    Args:
        operator: ``domain::Type``, or ``Type`` for ONNX's own.
        dtype: of the tensors that it computes with.
        runtime: its name.
        provider: as the table spells it: ``cpu``, ``cuda``.
        version: of the runtime; "": the newest in the table. One that the table lacks has the
            kernels of the nearest older one.
    """
    rows = [
        kernel
        for kernel in kernels()
        if (kernel.operator, kernel.runtime, kernel.provider) == (operator, runtime, provider)
        and (not version or _holds(kernel.since, version))
    ]
    last = max(rows, key=lambda kernel: release(kernel.since), default=None)
    if last is None or not dtype or str(dtype) not in last.types:
        return None
    return last


def first_release(kernel: Kernel, dtype: DataType) -> str:
    """Return the first release that has a kernel's operator, in its provider, for a type.

    Of half, one that computes inside in the same type.
    """
    half = dtype in (DataType.FLOAT16, DataType.BFLOAT16)
    rows = [
        row
        for row in kernels()
        if (row.operator, row.runtime, row.provider)
        == (kernel.operator, kernel.runtime, kernel.provider)
        and str(dtype) in row.types
        and (row.inside == kernel.inside or not half)
    ]
    return min((row.since for row in rows), key=release)


@dataclass(frozen=True)
class Use:
    """How a file uses an operator of a runtime."""

    operator: str
    dtype: DataType | None
    provided_by: str
    """The runtime, as its definition states it."""
    may_be_empty: bool
    """Whether a size of its first input may be 0."""
    attributes: frozenset[str] = frozenset()
    """Those that it has."""


def runtimes(uses: Iterable[Use], target: Target) -> list[str]:
    """Return the runtimes that operators need, each with its oldest release."""
    oldest: dict[str, str] = {}
    others: set[str] = set()
    for use in uses:
        runtime, exact, since = use.provided_by.partition(">=")
        if not exact or not since.replace(".", "").isdecimal():
            others.add(use.provided_by)
            continue
        kernel = target.kernel(use.operator, use.dtype, runtime)
        if kernel is not None and use.dtype is not None:
            since = max(since, first_release(kernel, use.dtype), key=release)
        if kernel is not None and kernel.empty and use.may_be_empty:
            since = max(since, kernel.empty, key=release)
        if kernel is not None:
            readers = [kernel.attributes[name] for name in kernel.misread(use.attributes, since)]
            since = max([since, *readers], key=release)
        oldest[runtime] = max(oldest.get(runtime, since), since, key=release)
    return [*(f"{runtime}>={since}" for runtime, since in sorted(oldest.items())), *sorted(others)]


def float32_inputs(operator: str) -> Sequence[int]:
    """Return the inputs of an operator that are float32 in each of its kernels."""
    return next((row.float32_inputs for row in kernels() if row.operator == operator), ())


def release_note(target: Target) -> str:
    """Return a line where a target's release is newer or older than all of a table, or ""."""
    if not target.version:
        return ""
    for runtime, newest in sorted(_tables()[1].items()):
        if release(target.version) > release(newest):
            return (
                f"target {target}: the table of kernels ends at {runtime} {newest}, which it takes"
            )
        rows = [row.since for row in kernels() if row.runtime == runtime]
        oldest = min(rows, key=release)
        if not _holds(oldest, target.version):
            return (
                f"target {target}: the table of kernels begins at {runtime} {oldest}, so that "
                "no kernel of it is used"
            )
    return ""


def kernels() -> tuple[Kernel, ...]:
    """Return the rows of all tables."""
    return _tables()[0]


def _holds(since: str, version: str) -> bool:
    """Whether a release is one from ``since`` on; ``1.24`` is its newest, 1.24.x."""
    parts = release(version)
    return release(since)[: len(parts)] <= parts


def release(version: str) -> tuple[int, ...]:
    """Return a version's numbers, for comparisons."""
    return tuple(map(int, version.split(".")))


@lru_cache(maxsize=1)
def _tables() -> tuple[tuple[Kernel, ...], dict[str, str]]:
    """Return the rows of all tables, and the last release that each runtime was checked with."""
    rows: list[Kernel] = []
    newest: dict[str, str] = {}
    for path in shipped_files(_TABLE):
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            rows.extend(Kernel(**row) for row in table["kernel"])
            newest |= table["newest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise VendorError(f"no table of kernels: {error}", where=path) from error
    return tuple(rows), newest
