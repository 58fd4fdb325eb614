"""Write a pass and test, by template or for a model's nodes."""

from __future__ import annotations

import keyword
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from gehost.diagnose.at_stage import at_stage
from gehost.errors import OutputError, UsageError
from gehost.host.vendors import PASSES_DIR
from gehost.ir.files.save import write_bytes_atomic
from gehost.ir.graph import split_op
from gehost.ir.model import Model
from gehost.options import HostOptions
from gehost.quoting import in_docstring
from gehost.scaffold.decompose import decomposed
from gehost.scaffold.place import Place, chosen_nodes, place_of
from gehost.scaffold.styles import DECOMPOSE, Names, Replaced, style_of, written

_SUFFIX = "_pass"


@dataclass(frozen=True)
class Target:
    """Directory and name of a new pass."""

    vendor: str
    stem: str
    home: Path
    """The vendor's directory."""

    @classmethod
    def of(cls, name: str, root: str) -> Target:
        """Read ``vendor/pass``.

        Raises:
            UsageError: it is not in lower-case Python names.
        """
        vendor, _, stem = name.partition("/")
        for part in (vendor, stem):
            if not re.fullmatch(r"[a-z][a-z0-9_]*", part) or keyword.iskeyword(part):
                raise UsageError(
                    f'"{name}": wanted VENDOR/PASS in lower case letters, digits and _, as in '
                    "acme/fuse_matmul_add"
                )
        return cls(vendor, stem, Path(root) / vendor)

    @property
    def camel(self) -> str:
        """The name in CamelCase, without ``Pass``."""
        return "".join(word.capitalize() for word in self.stem.removesuffix(_SUFFIX).split("_"))

    @property
    def files(self) -> tuple[Path, Path, Path]:
        """Paths of the pass, its test and the model of the test."""
        tests = self.home / "tests"
        return (
            self.home / PASSES_DIR / f"{self.stem}.py",
            tests / f"test_{self.stem}.py",
            tests / f"{self.stem}.onnx",
        )


def write_pass(name: str, root: str, style: str = "class") -> list[Path]:
    """Write ``<root>/<vendor>/custom_fusion_passes/<pass>.py`` and its test; return the files.

    Raises:
        UsageError: ``name`` is not ``vendor/pass`` in lower-case Python names, a file exists
            already, or the style writes no first pass.
        OutputError: a file or directory cannot be written.
    """
    target = Target.of(name, root)
    first = style_of(style).first
    if not first:
        raise UsageError(
            f"style {style} takes its pattern from a model",
            where="--style",
            hint="give --from MODEL and --nodes A,B,C",
        )
    test = (files("gehost") / "templates" / "test_pass.py.txt").read_text(encoding="utf-8")
    texts = [Template(first), Template(test)]
    return _write(
        {
            path: text.safe_substitute(pass_name=f"{target.camel}Pass").encode()
            for path, text in zip(target.files, texts, strict=False)
        }
    )


def write_pass_from(
    name: str, root: str, model: str, nodes: Sequence[str], style: str, stage: str
) -> tuple[list[Path], list[str]]:
    """Write a pass whose pattern is some nodes of a model.

    Its test has the sub-model. Returns the files, and notes for the author.

    The pass replaces the nodes with an operator of the vendor, whose body they are. Tensors from
    outside are placeholders. A constant of one element is matched by value beside an arithmetic
    operator and as a bound of Clip; other constants are captured by name. Attributes are
    constraints, also those that are left at their defaults. A ``decompose`` pass replaces one
    node: by the parts that ONNX, or the model, defines for it; else by an operator whose body is
    the node.

    Args:
        name: ``vendor/pass``.
        root: the directory of vendors.
        model: the file.
        nodes: names of nodes, or of their outputs.
        style: one of ``installed_styles``.
        stage: where the pass runs; the nodes are those that the first pass of this stage sees,
            without the passes of other vendors.

    Raises:
        UsageError: as ``write_pass``; there is no such node, stage or style, or the nodes cannot
            form a pattern.
        ModelError: the model cannot be read.
        OutputError: a file or directory cannot be written.
    """
    target = Target.of(name, root)
    _check_free(target.files)
    chosen = style_of(style)
    if not chosen.template:
        raise UsageError(
            f"style {style} writes a first pass",
            where="--style",
            hint="leave --from and --nodes out",
        )
    options = HostOptions()
    place, replaced, notes = at_stage(
        model, options, stage, lambda loaded: _describe(loaded, nodes, style)
    )
    plural = "node" if len(nodes) == 1 else "nodes"
    origin = (
        f"Written by `gehost new --from` for {plural} {', '.join(nodes)} of "
        f"{os.path.basename(model)}: a starting point to change."
    )
    op_type = target.camel
    if op_type in {split_op(operator.op)[1] for operator in place.operators}:
        op_type = f"{target.vendor.capitalize()}{op_type}"
    docstring = "\n\n".join(
        textwrap.fill(in_docstring(text), 99, break_long_words=False, break_on_hyphens=False)
        for text in (origin, *notes)
    )
    names = Names(
        stem=target.stem,
        pass_name=target.stem if chosen.by_function else f"{target.camel}Pass",
        op=f"{target.vendor}::{op_type}",
        stage=stage,
        origin=docstring,
    )
    code, test = written(chosen, place, names, replaced)
    data = place.model.SerializeToString()
    files = _write(dict(zip(target.files, (code.encode(), test.encode(), data), strict=True)))
    return files, notes


def _describe(
    model: Model, names: Sequence[str], style: str
) -> tuple[Place, Replaced | None, list[str]]:
    """Describe the nodes, a DecomposePass's replaced node, and notes."""
    nodes = chosen_nodes(model, names)
    if style == DECOMPOSE:
        if len(nodes) != 1:
            raise UsageError("one node is replaced", where=f"--style {DECOMPOSE}", hint="name one")
        return decomposed(model, nodes[0])
    return place_of(model, nodes), None, []


def _check_free(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists():
            raise UsageError("exists already", where=path, hint="choose another name")


def _write(files: Mapping[Path, bytes]) -> list[Path]:
    """Write new files; return them.

    Raises:
        UsageError: one exists already.
        OutputError: a file or directory cannot be written.
    """
    _check_free(files)
    for path, data in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot make the directory: {error.strerror}", where=path.parent
            ) from error
        write_bytes_atomic(path, data)
    return list(files)
