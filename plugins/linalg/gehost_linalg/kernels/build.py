"""Compile a C file of kernels to a cached shared library."""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from gehost import OutputError, UsageError, write_bytes_atomic
from gehost_linalg.kernels import ort

FLAGS = (
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fopenmp-simd",
    "-fPIC",
    "-std=gnu11",
)
"""Never -ffast-math, which drops NaN and infinities; -fopenmp-simd allows any order of sums."""


def compiler(argument: str | None = None) -> list[str]:
    """Find a C compiler: given, $CC, cc, gcc, clang, or ziglang.

    Raises:
        UsageError: there is none, or the given one does not exist.
    """
    for text in (argument, os.environ.get("CC")):
        if text:
            try:
                command = shlex.split(text)
            except ValueError as error:
                raise UsageError(f"C compiler {text!r}: {error}") from error
            if not command or shutil.which(command[0]) is None:
                raise UsageError(
                    f"C compiler {text!r}{'' if text == argument else ' of $CC'} is not there",
                    hint="name another, or pip install ziglang",
                )
            return command
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name) is not None:
            return [name]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-P", "-m", "ziglang", "cc"]  # -P: not from the current directory
    raise UsageError(
        "no C compiler: $CC is not set, and there is no cc, gcc, clang or ziglang; "
        "pip install ziglang"
    )


def cache_folder() -> Path:
    """The cache of libraries: ``$XDG_CACHE_HOME/gehost/kernels``, else below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base, "gehost", "kernels")


def build(source: str, output: Path, *, cc: str | None = None, march: str = "native") -> bool:
    """Write the library; return whether it was compiled, not cached.

    The file appears complete under its name, or not at all, also where processes build it at once.
    Where the cache cannot be written, nothing is cached.

    Args:
        source: C, as ``c.source`` gives it.
        output: the path of the library.
        cc: a compiler; see ``compiler``.
        march: the instructions that kernels may use, as ``-march=`` takes it.

    Raises:
        UsageError: there is no compiler, or it fails; the C file is kept then.
        OutputError: the library cannot be written.
    """
    command = compiler(cc)
    is_zig = any(Path(item).name in {"ziglang", "zig"} for item in command)
    if is_zig and march.startswith("x86-64"):
        march = march.replace("-", "_")  # as zig spells it
    flags = [*FLAGS, *([f"-march={march}"] if march else [])]
    try:
        cached = cache_folder() / f"{_key(source, command, flags, march)}{output.suffix or '.so'}"
        with tempfile.TemporaryDirectory(prefix="gehost-kernels-") as folder:
            is_new = not (cached.is_file() and _is_library(cached))
            result = cached
            if is_new:
                result = _compile(source, Path(folder), command, flags, output)
                with suppress(OSError, OutputError):  # a read-only home: the next build compiles
                    cached.parent.mkdir(parents=True, exist_ok=True)
                    write_bytes_atomic(cached, result.read_bytes())
            write_bytes_atomic(output, result.read_bytes())
        return is_new
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror or error}", where=output) from error


def _key(source: str, command: Sequence[str], flags: Sequence[str], march: str) -> str:
    version = _run([*command, "--version"]).stdout
    parts = [source, *command, *flags, version.decode("utf-8", "replace"), platform.machine()]
    if march == "native":
        parts.append(_cpu())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - the user's compiler
    except OSError as error:
        raise UsageError(
            f"C compiler {command[0]} cannot be run: {error.strerror or error}"
        ) from error


def _cpu() -> str:
    """The features of this CPU, as the system lists them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line for line in lines if line.startswith(("flags", "Features"))), platform.processor()
    )


def _compile(
    source: str, folder: Path, command: Sequence[str], flags: Sequence[str], output: Path
) -> Path:
    code, library = folder / "kernels.c", folder / "kernels.so"
    code.write_text(source, encoding="utf-8")
    kernels, register = folder / "kernels.o", folder / "register.o"
    for arguments in (
        [*flags, "-fvisibility=hidden", "-c", code, "-o", kernels],
        [
            "-O2",
            "-fPIC",
            "-std=gnu11",
            "-fvisibility=hidden",
            "-DGEHOST_REGISTER",
            "-c",
            code,
            "-o",
            register,
        ],
        ["-shared", kernels, register, "-lm", "-o", library],
    ):
        process = _run([*command, *map(str, arguments)])
        result = Path(arguments[-1])
        if (
            process.returncode
            or not result.is_file()
            or (result == library and not _is_library(result))
        ):
            retained = _unused(output.with_suffix(".c"))
            shutil.copyfile(code, retained)
            text = process.stderr.decode("utf-8", "replace")
            raise UsageError(
                f"{' '.join(command)} fails: {_first_error(text) or _end(process.returncode)}; "
                f"the C file is {retained}"
            )
    return library


def _first_error(text: str) -> str:
    """The first error that a compiler or linker printed, else its first line, else ""."""
    lines = [line for line in text.splitlines() if not line.startswith("collect2: ")]
    marks = r"\berror:", "undefined reference|cannot find|No such file", "error", ""
    match = (line for mark in marks for line in lines if re.search(mark, line))
    return next(match, "")


def _end(code: int) -> str:
    """How a compiler ended that printed nothing."""
    if code < 0:
        return f"it was ended by signal {-code}"
    return f"it ended with code {code} and no message" if code else "it wrote no library"


def _is_library(file: Path) -> bool:
    return ort.MARK.encode() in file.read_bytes()


def _unused(path: Path) -> Path:
    """The path itself, or one with a number that is free."""
    names = (path.with_suffix(f".{number}{path.suffix}") for number in itertools.count(1))
    return next(item for item in itertools.chain([path], names) if not item.exists())
