"""Compile the hot modules of gehost with mypyc and a C compiler, for the distribution gehost-native.

pyproject.toml lists the modules, and the classes with attributes of mypyc.
``pip install . ./tools/native`` puts the machine code beside the sources that gehost installed;
``make compiled`` runs this file and puts it beside those of a clone. ``gehost --version`` shows
which form runs. ``--types`` only lets mypyc check the types, which ``make nightly`` does.

Machine code gives the same outputs in less time (tools/benchmarks/README.md). It differs in these
points: an argument of a wrong type is a TypeError at once; classes that authors do not derive from
(``EsGraphBuilder``, ``Node``) cannot be subclassed, nor their methods replaced; very deep patterns
end in no RecursionError; some errors have no ``__cause__``. After editing a compiled module, run
``make compiled`` or ``make interpreted``: the tests refuse machine code older than its source.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).parent
ROOT = HERE if (HERE / "gehost").is_dir() else HERE.parents[1]
"""The folder that has gehost/: an sdist, or the clone."""


class MachineCode(BuildHookInterface):  # type: ignore[type-arg]
    """Fill the wheel with the compiled modules, and with the version that they belong to."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile into a temporary directory.

        Raises:
            RuntimeError: an editable install, which has no place for machine code.
        """
        if version == "editable":
            raise RuntimeError(
                "gehost-native has no editable form: run `make compiled` in the clone"
            )
        self._directory = TemporaryDirectory()
        built = Path(self._directory.name, "lib")
        compile_into(self._directory.name)
        (built / "gehost" / "machine_code.py").write_text(
            f'"""The version that gehost-native was compiled of."""\n\n'
            f'VERSION = "{self.metadata.version}"\n',
            encoding="utf-8",
        )
        files = [file for file in built.rglob("*") if file.is_file()]
        build_data["force_include"].update(
            {str(file): str(file.relative_to(built)) for file in files}
        )
        build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary directory."""
        del version, build_data, artifact_path
        self._directory.cleanup()


def hook() -> dict[str, Any]:
    """Return the settings of the build hook: modules, and attributes of classes."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))
    return project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]


def hot_modules() -> list[str]:
    """Return the files that the hook's ``include`` and ``exclude`` patterns select."""
    excluded = {path for pattern in hook()["exclude"] for path in ROOT.glob(pattern)}
    included = {path for pattern in hook()["include"] for path in ROOT.glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in included - excluded)


MYPY = ("--ignore-missing-imports", "--follow-imports=silent", "--cache-dir=cache")


def copy_into(directory: str) -> str:
    """Copy the sources, with mypyc's attributes above classes, into a directory; return its path."""
    directory = str(Path(directory).resolve())
    shutil.copytree(ROOT / "gehost", Path(directory, "gehost"))
    for attributes, classes in hook()["attributes"].items():
        for file, names in classes.items():
            path = Path(directory, file)
            text = with_attributes(path.read_text(encoding="utf-8"), attributes, names)
            path.write_text(text, encoding="utf-8")
    return directory


def type_errors(directory: str) -> list[str]:
    """Return what mypyc refuses in the hot modules; mypy by itself accepts more."""
    from mypy.errors import CompileError
    from mypyc.build import get_mypy_config
    from mypyc.codegen.emitmodule import parse_and_typecheck
    from mypyc.options import CompilerOptions

    with chdir(copy_into(directory)):
        compiler = CompilerOptions()
        sources, _, options = get_mypy_config([*MYPY, *hot_modules()], None, compiler, None)
        try:
            return parse_and_typecheck(sources, options, compiler, [(sources, "gehost")]).errors
        except CompileError as error:
            return error.messages


def compile_into(directory: str) -> None:
    """Compile the hot modules of a copy of the sources into ``lib`` of a directory."""
    from mypyc.build import mypycify
    from setuptools import setup

    with chdir(copy_into(directory)):
        sources = hot_modules()
        extensions = mypycify([*MYPY, *sources], target_dir="c")
        c_files = {Path(file) for extension in extensions for file in extension.sources}
        add_docstrings(sources, c_files)
        setup(
            name="gehost",
            packages=[],
            ext_modules=extensions,
            script_args=["--quiet", "build_ext", "--build-lib=lib", "--build-temp=temp"],
        )


def with_attributes(source: str, attributes: str, classes: Collection[str]) -> str:
    """Write mypyc's attributes above classes, where blank lines are: no line changes its number."""
    lines = source.splitlines()
    rest = set(classes)
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            place, line = node.lineno, "from mypy_extensions import mypyc_attr"
        elif isinstance(node, ast.ClassDef) and node.name in rest:
            rest.remove(node.name)
            first = min(item.lineno for item in (node, *node.decorator_list))
            place, line = first - 2, f"@mypyc_attr({attributes})"
        else:
            continue
        if lines[place] not in ("", line):
            raise ValueError(f"line {place + 1} is not blank: {lines[place]}")
        lines[place] = line
    if rest:
        raise ValueError(f"no classes {sorted(rest)}")
    return "\n".join((*lines, ""))


_TEXT = r"PyDoc_STR\((?:\"[^\"]*(?P<end>\")|(?P<none>NULL))\)"
_ENTRIES = (
    rf"\(PyCFunction\)CPyPy_(?P<name>\w+),[^\"{{}}]*{_TEXT}",
    rf"CPyType_(?P<name>\w+)_template_ = \{{[^{{}}]*?\.tp_doc = {_TEXT}",
    (
        r"\(getter\)(?P<owner>\w+?)_get_(?P<name>\w+),\s*"
        r"(?:\(setter\)\w+|NULL),\s*(?P<none>NULL), NULL\}"
    ),
)
"""mypyc's C for a function, a class and a property, up to where the docstring belongs: behind a
signature, or in the place of NULL, as some signatures cannot be written.
"""


def add_docstrings(sources: Iterable[str], c_files: Iterable[Path]) -> None:
    """Write the docstrings into the generated C, where mypyc leaves only the signatures."""
    entries = dict(_docstrings_by_symbol(sources))

    def documented(match: re.Match[str]) -> str:
        result = match.groupdict()
        owner = result.get("owner")
        text = entries.get(f"{owner}___{result['name']}" if owner else result["name"])
        if text is None:
            return match[0]
        literal = "".join(
            chr(byte) if byte < 128 and (chr(byte).isalnum() or byte == 32) else f"\\{byte:03o}"
            for byte in text.encode()
        )
        if result["none"]:
            start, end, literal = *match.span("none"), f'"{literal}"'
        else:
            start = end = match.start("end")
        head, tail = match[0][: start - match.start()], match[0][end - match.start() :]
        return head + literal + tail

    for file in c_files:
        text = file.read_text(encoding="utf-8")
        for entry in _ENTRIES:
            text = re.sub(entry, documented, text)
        file.write_text(text, encoding="utf-8")


def _docstrings_by_symbol(sources: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield docstrings by symbol; mypyc shortens a module's name to any of its suffixes."""
    for source in sources:
        path = Path(source)
        parts = path.with_suffix("").parts
        for name, text in _docstrings(ast.parse(path.read_text(encoding="utf-8")).body):
            for start in range(len(parts)):
                yield "___".join((*parts[start:], *name)), text


def _docstrings(body: list[ast.stmt]) -> Iterator[tuple[tuple[str, ...], str]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            if text := ast.get_docstring(node):
                yield (node.name,), text
            if isinstance(node, ast.ClassDef):
                yield from (((node.name, *name), text) for name, text in _docstrings(node.body))


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        if sys.argv[1:] == ["--types"]:
            sys.exit("\n".join(type_errors(temporary)) or 0)
        compile_into(temporary)
        shutil.copytree(Path(temporary, "lib"), ROOT, dirs_exist_ok=True)
