"""Libraries: caching, compilers that are missing or fail, two builds at once, CPUs that lack instructions."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from gehost import OutputError, UsageError
from gehost_linalg.kernels import build as building
from gehost_linalg.kernels import ort
from gehost_linalg.kernels.build import build, compiler
from gehost_linalg.kernels.c import source
from gehost_linalg.kernels.library import fused, names_in

from .emulated import VERSIONS, Emulator, program
from .fused_models import Case, fused_model, run, session

CASE = Case("float[N] x, float[N] z", "s = Add(x, z)\ny = Tanh(s)")


@pytest.fixture
def text(tmp_path: Path) -> str:
    """The C of one kernel; the cache of this test is empty."""
    onnx.save(fused_model([CASE]), tmp_path / "fused.onnx")
    return source(fused(str(tmp_path / "fused.onnx")).kernels)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_library_is_compiled_once(
    cc: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build(text, tmp_path / "a.so")
    monkeypatch.setattr(building, "_compile", lambda *_: pytest.fail("compiled again"))
    assert not build(text, tmp_path / "b.so")
    assert (tmp_path / "a.so").read_bytes() == (tmp_path / "b.so").read_bytes()


def test_a_damaged_library_in_the_cache_is_built_again(cc: str, text: str, tmp_path: Path) -> None:
    build(text, tmp_path / "a.so")
    (cached,) = (tmp_path / "cache" / "gehost" / "kernels").iterdir()
    cached.write_bytes(b"")
    assert build(text, tmp_path / "b.so")
    assert len(names_in(str(tmp_path / "b.so"))) == 1


def test_other_flags_are_another_library(cc: str, text: str, tmp_path: Path) -> None:
    assert build(text, tmp_path / "a.so", march="native")
    assert build(text, tmp_path / "b.so", march="")


def test_builds_at_once_leave_one_complete_file(cc: str, text: str, tmp_path: Path) -> None:
    library = tmp_path / "a.so"
    with ThreadPoolExecutor(3) as pool:
        assert any(pool.map(lambda _: build(text, library), range(3)))
    assert len(names_in(str(library))) == 1
    session(fused_model([CASE]), library)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert len(list((tmp_path / "cache" / "gehost" / "kernels").iterdir())) == 1


def test_a_compiler_that_fails(cc: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"fails: .*error.*; the C file is .*a\.c"):
        build("int x = ;", tmp_path / "a.so")
    assert (tmp_path / "a.c").read_text() == "int x = ;"
    assert not (tmp_path / "a.so").exists()


def test_the_first_error_and_not_a_warning_of_errors(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    said = (
        "a.c:1: warning: errors are near\na.c:2:1: error: bang\n",
        "ld: cannot find -lx\ncollect2: error: ld\n",
    )
    for text, first in zip(said, ("error: bang", "cannot find -lx"), strict=True):
        compiler.write_text(f"#!/bin/sh\nprintf '{text}' >&2\nexit 1\n")
        compiler.chmod(0o755)
        with pytest.raises(UsageError, match=f"fails: [^;]*{first}; the C file"):
            build("int x;", tmp_path / "a.so", cc=str(compiler))


@pytest.mark.parametrize(("name", "spelt"), [("zig", "x86_64_v3"), ("gcc", "x86-64-v3")])
def test_instructions_as_the_compiler_spells_them(tmp_path: Path, name: str, spelt: str) -> None:
    compiler = tmp_path / name
    compiler.write_text('#!/bin/sh\necho "$@" >&2\nexit 1\n')
    compiler.chmod(0o755)
    with pytest.raises(UsageError, match=f"fails: .*-march={spelt} "):
        build("int x;", tmp_path / "a.so", cc=f"{compiler} cc", march="x86-64-v3")


def test_a_pipe_is_not_replaced_and_a_link_is_followed(cc: str, text: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="pipe': it is a device, a pipe or a socket"):
        build(text, tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link.so").symlink_to(tmp_path / "real.so")
    build(text, tmp_path / "link.so")
    assert (tmp_path / "link.so").is_symlink()
    assert names_in(str(tmp_path / "real.so"))


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("kill -SEGV $$", "it was ended by signal 11"),
        ("exit 3", "it ended with code 3 and no message"),
        ("exit 0", "it wrote no library"),
        ('for last; do :; done; echo junk > "$last"', "it wrote no library"),
    ],
)
def test_a_compiler_without_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)  # asked for its --version, the last one writes a file of that name
    compiler = tmp_path / "cc"
    compiler.write_text(f"#!/bin/sh\n{end}\n")
    compiler.chmod(0o755)
    with pytest.raises(UsageError, match=f"cc fails: {message}; the C file is .*a\\.c"):
        build("int x;", tmp_path / "a.so", cc=str(compiler))
    assert not (tmp_path / "a.so").exists()


def test_the_c_file_of_the_user_stays(cc: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("mine")
    for number in (1, 2):
        with pytest.raises(UsageError, match=rf"the C file is .*a\.{number}\.c"):
            build("int x = ;", tmp_path / "a.so")
    assert (tmp_path / "a.c").read_text() == "mine"


@pytest.mark.parametrize("text", ["echo", "#!/no/such/shell"])
def test_a_compiler_that_cannot_be_run(tmp_path: Path, text: str) -> None:
    compiler = tmp_path / "mycc"
    compiler.write_text(text)
    compiler.chmod(0o755)
    with pytest.raises(UsageError, match="C compiler .*mycc cannot be run: "):
        build("int x;", tmp_path / "a.so", cc=str(compiler))
    with pytest.raises(UsageError, match='C compiler "gcc \'": No closing quotation'):
        build("int x;", tmp_path / "a.so", cc="gcc '")


def test_a_cache_that_cannot_be_written(
    cc: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert build(text, tmp_path / "a.so")
    assert len(names_in(str(tmp_path / "a.so"))) == 1


def test_a_disk_that_is_full(cc: str, tmp_path: Path) -> None:
    """A limit of the size of files stands for it; neither file is left in part."""
    onnx.save(fused_model([CASE]), tmp_path / "fused.onnx")
    # -B: Python would leave truncated byte code behind
    command = f"ulimit -f 8; {sys.executable} -B -m gehost kernels fused.onnx -o a.so --emit-c a.c"
    process = subprocess.run(
        ["sh", "-c", command], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 2
    assert process.stderr.startswith("gehost: cannot write 'a.c': File too large")
    assert process.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["fused.onnx"]


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(building, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"no C compiler: \$CC is not set.*pip install ziglang"):
        compiler()
    with pytest.raises(UsageError, match="'nocc -x' is not there; .*pip install ziglang"):
        compiler("nocc -x")
    monkeypatch.setattr(building, "find_spec", lambda name: name)
    assert compiler()[1:] == ["-P", "-m", "ziglang", "cc"]


def test_a_cpu_that_lacks_instructions(cc: str, text: str, tmp_path: Path) -> None:
    """The test that the library makes is turned around, as no CPU lacks what it has."""
    number = next(n for n, (macro, *_) in enumerate(ort.FEATURES) if macro == "__SSE4_2__")
    planted = text.replace(
        "const uint32_t gehost_features = 0", f"const uint32_t gehost_features = 1u << {number}"
    )
    planted = planted.replace("!(has(1, 'c', 20))", "has(1, 'c', 20)")
    build(planted, tmp_path / "a.so", march="")
    if _is_x86():
        with pytest.raises(
            onnxruntime.capi.onnxruntime_pybind11_state.Fail,
            match=r"instructions that this CPU lacks \(sse4.2\)",
        ):
            session(fused_model([CASE]), tmp_path / "a.so")


def test_instructions_that_no_cpu_has_together(cc: str, text: str, tmp_path: Path) -> None:
    """AMD's XOP and Intel's AVX-512 ER: one of them is refused by each CPU."""
    if not _is_x86():
        pytest.skip("x86-64 only")
    for march in ("bdver4", "knl"):
        build(text, tmp_path / f"{march}.so", march=march)
    with pytest.raises(Exception, match=r"instructions that this CPU lacks \("):  # noqa: PT012
        for march in ("bdver4", "knl"):
            session(fused_model([CASE]), tmp_path / f"{march}.so")


def _is_x86() -> bool:
    import platform

    return platform.machine() == "x86_64"


def test_names_are_read_without_loading(cc: str, text: str, tmp_path: Path) -> None:
    build(text, tmp_path / "a.so")
    assert names_in(str(tmp_path / "a.so")) == [fused_model([CASE]).functions[0].name]
    (tmp_path / "other.so").write_bytes(b"\x7fELF")
    with pytest.raises(UsageError, match="is no library of kernels"):
        names_in(str(tmp_path / "other.so"))
    with pytest.raises(UsageError, match="cannot be read"):
        names_in(str(tmp_path / "missing.so"))


def test_two_sessions_share_a_library(cc: str, text: str, tmp_path: Path) -> None:
    import numpy as np

    build(text, tmp_path / "a.so")
    model = fused_model([CASE])
    first, second = session(model, tmp_path / "a.so"), session(model, tmp_path / "a.so")
    feeds = {value.name: np.ones(3, np.float32) for value in model.graph.input}
    assert str(run(first, feeds)) == str(run(second, feeds)) == str(run(session(model), feeds))


@pytest.mark.parametrize("version", VERSIONS)
def test_shapes_before_and_after_1_24(cc: str, tmp_path: Path, version: str) -> None:
    """Both ways to read a shape, in a program that stands for ONNX Runtime."""
    onnx.save(fused_model([CASE]), tmp_path / "fused.onnx")
    kernels = fused(str(tmp_path / "fused.onnx")).kernels
    result = program(kernels, shlex.split(cc), "", tmp_path)
    emulator = Emulator([str(result), version])
    x, z = np.array([0, 1, 2], np.float32), np.array([0.5, 0, 1], np.float32)
    match = emulator(0, [x, z], [x.dtype])
    assert not isinstance(match, str)
    np.testing.assert_allclose(match[0], np.tanh(x + z), rtol=1e-6)
    refused = emulator(0, [x[None], z], [x.dtype])
    assert isinstance(refused, str)
    assert "input 0 has rank 2, wanted 1" in refused
    emulator.close()
