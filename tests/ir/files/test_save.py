from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf.message import EncodeError
from onnx import TensorProto

from gehost.errors import ModelError, OutputError
from gehost.ir import tensors
from gehost.ir.files import external, save
from gehost.ir.files.save import save_model, write_bytes_atomic

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[N, 3] x) => (float[N, 2] y) { h = MatMul(x, w) y = Add(h, b) }
"""
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def data_of(folder, name="m.onnx"):
    """The one file of weights of a model."""
    (actual,) = folder.glob(f"{name}.*.data")
    return actual


def model_with_weights(directory, *files: str, gap: int = 0, seed: int = 0) -> onnx.ModelProto:
    """y = x @ w + b, with w and b in external files (one file for both, or one each) after ``gap`` unused bytes."""
    proto = onnx.parser.parse_model(TEXT)
    random = np.random.default_rng(seed)
    for index, (name, shape) in enumerate([("w", (3, 2)), ("b", (2,))]):
        tensor = tensors.from_numpy(random.normal(size=shape).astype(np.float32), name)
        location = files[index % len(files)]
        (directory / location).parent.mkdir(parents=True, exist_ok=True)
        with open(directory / location, "ab") as file:
            file.write(b"\xee" * gap)
            offset = file.tell()
            file.write(tensor.raw_data)
        tensor.ClearField("raw_data")
        add_entries(
            tensor, location=location, offset=offset, length=tensors.nbytes(tensor), checksum="0"
        )
        proto.graph.initializer.append(tensor)
    return proto


def add_entries(tensor: TensorProto, **entries: object) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))


def embedded_model() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def read(path) -> onnx.ModelProto:
    return onnx.load(path, load_external_data=False)


def run(path) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    return np.asarray(result)


def files_of(directory) -> dict[str, tuple[bytes, int]]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(directory)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in files
    }


def failing_at(patch, name: str, call: int, error: BaseException) -> list[int]:
    """Let call number ``call`` of an ``os`` function fail; returns a list that grows with each call."""
    calls: list[int] = []
    real = getattr(os, name)

    def wrapper(*arguments, **options):
        calls.append(len(calls))
        if calls[-1] == call:
            raise error
        return real(*arguments, **options)

    patch.setattr(os, name, wrapper)
    return calls


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def umask():
    old = os.umask(0o027)
    yield 0o640
    os.umask(old)


# -- one file --------------------------------------------------------------------------------------------------------


def test_the_file_holds_the_serialized_model_and_nothing_else_is_there(out, monkeypatch):
    monkeypatch.chdir(out)
    for path in (out / "a.onnx", str(out / "b.onnx"), "c.onnx"):
        save_model(embedded_model(), path, None)
    write_bytes_atomic("empty", b"")
    contents = {name: content for name, (content, _) in files_of(out).items()}
    assert contents == {
        **dict.fromkeys(["a.onnx", "b.onnx", "c.onnx"], embedded_model().SerializeToString()),
        "empty": b"",
    }


def test_content_is_written_whole_where_one_write_takes_a_part(out, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, view: real(descriptor, bytes(view[:7])))
    write_bytes_atomic(out / "f", bytes(range(100)))
    assert (out / "f").read_bytes() == bytes(range(100))


def test_a_new_file_has_the_mode_that_the_umask_gives(source, out, umask):
    save_model(model_with_weights(source, "weights.bin"), out / "m.onnx", str(source))
    assert [mode for _, mode in files_of(out).values()] == [umask, umask]


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_a_replaced_file_keeps_its_mode_and_its_readers(out, umask, mode):
    (out / "f").write_bytes(b"old")
    (out / "f").chmod(mode)
    with open(out / "f", "rb") as reader:
        write_bytes_atomic(out / "f", b"new")
        assert reader.read() == b"old"
    assert files_of(out) == {"f": (b"new", mode)}


@pytest.mark.parametrize("error", [NO_SPACE, KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize(
    ("name", "old"),
    [(name, old) for name in ("write", "fsync", "replace") for old in (True, False)]
    + [("chmod", True)],
)
def test_a_failure_leaves_the_old_file_alone(out, monkeypatch, name, old, error):
    if old:
        (out / "m.onnx").write_bytes(b"old")
    before = files_of(out)
    failing_at(monkeypatch, name, 0, error)
    expected = (
        r"^cannot write '.*m\.onnx': No space left on device; " if error is NO_SPACE else None
    )
    with pytest.raises((OutputError, KeyboardInterrupt), match=expected):
        save_model(embedded_model(), out / "m.onnx", None)
    assert files_of(out) == before


def test_the_file_is_on_disk_before_it_gets_its_name(out, monkeypatch):
    steps = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, name=name, real=real: (steps.append(name), real(*a))[1]
        )
    write_bytes_atomic(out / "f", b"abc")
    assert steps == ["write", "fsync", "replace"]


UNWRITABLE = {
    "no parent": ("{out}/nowhere/m.onnx", "there is no directory .*nowhere'; create it first"),
    "parent is a file": ("{out}/file/m.onnx", "Not a directory|there is no directory"),
    "directory": ("{out}/directory", "it names a directory; name a file in it"),
    "trailing slash": ("{out}/m.onnx/", "it names a directory; name a file in it"),
    "empty": ("", "it names a directory; name a file in it"),
    "fifo": ("{out}/fifo", "it is a device, a pipe or a socket"),
    "device": ("/dev/null", "it is a device, a pipe or a socket"),
    "link to itself": ("{out}/loop", "symbolic links"),
    "nul": ("{out}/a\0b", "NUL"),
    "too long": ("{out}/" + "x" * 300, "File name too long"),
}


@pytest.mark.parametrize(("path", "message"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_outputs_that_cannot_be_written(out, path, message):
    (out / "directory").mkdir()
    (out / "file").write_bytes(b"")
    (out / "loop").symlink_to("loop")
    os.mkfifo(out / "fifo")
    path = path.format(out=out)
    for action in (
        lambda: save_model(embedded_model(), path, None),
        lambda: write_bytes_atomic(path, b"abc"),
    ):
        with pytest.raises(OutputError, match=f"^cannot write '.*(?:{message})") as caught:
            action()
        assert "\n" not in str(caught.value)
    assert sorted(os.listdir(out)) == ["directory", "fifo", "file", "loop"]


def test_a_write_protected_output(out, monkeypatch):
    (out / "f").write_bytes(b"old")
    (out / "f").chmod(0o444)
    if os.geteuid() == 0:  # to root everything is writable
        monkeypatch.setattr(
            os, "access", lambda path, mode: not (mode & os.W_OK and str(path).endswith("f"))
        )
    with pytest.raises(OutputError, match="write-protected"):
        write_bytes_atomic(out / "f", b"new")
    assert (out / "f").read_bytes() == b"old"


def test_a_link_as_output_stays_a_link(out, source):
    (source / "real.onnx").write_bytes(b"old")
    (out / "m.onnx").symlink_to(source / "real.onnx")
    save_model(embedded_model(), out / "m.onnx", None)
    assert (out / "m.onnx").is_symlink()
    assert (source / "real.onnx").read_bytes() == embedded_model().SerializeToString()


def test_a_model_that_protobuf_refuses_to_write(out):
    def refuse():
        raise EncodeError("Failed to serialize proto")

    proto = SimpleNamespace(
        graph=onnx.GraphProto(), training_info=[], functions=[], SerializeToString=refuse
    )
    with pytest.raises(ModelError, match=r"2 GiB.*keep its weights as external data"):
        save_model(proto, out / "m.onnx", None)
    assert os.listdir(out) == []


def test_a_model_that_is_too_large(source, out, monkeypatch):
    proto = model_with_weights(source, "weights.bin")
    monkeypatch.setattr(save, "_PROTOBUF_LIMIT", len(proto.SerializeToString()))
    save_model(proto, source / "m.onnx", str(source))
    proto.producer_name = "one byte more or another ten"
    before = proto.SerializeToString()
    with pytest.raises(ModelError, match=r"2 GiB.*keep its weights as external data"):
        save_model(proto, out / "m.onnx", str(source))
    assert proto.SerializeToString() == before
    assert os.listdir(out) == []


# -- external data ---------------------------------------------------------------------------------------------------


def test_in_the_same_directory_tensors_keep_their_locations(source, tmp_path, monkeypatch):
    proto = model_with_weights(source, "weights.bin")
    monkeypatch.chdir(source)
    (tmp_path / "alias").symlink_to(source)
    for path, base in [
        (source / "a", str(source)),
        (tmp_path / "alias" / "b", str(source)),
        ("c", ""),
        ("c", "."),
    ]:
        save_model(proto, path, base)
    assert {
        name: content for name, (content, _) in files_of(source).items() if name != "weights.bin"
    } == dict.fromkeys(["a", "b", "c"], proto.SerializeToString())


@pytest.mark.parametrize("gap", [0, 5000], ids=["packed", "mostly-unused"])
@pytest.mark.parametrize(
    "files", [["weights.bin"], ["w.bin", "sub/b.bin"]], ids=["one-file", "two-files"]
)
@pytest.mark.parametrize("kernel", [None, errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP], ids=str)
def test_in_another_directory_the_weights_come_along(source, out, monkeypatch, kernel, files, gap):
    monkeypatch.setattr(save, "_CHUNK", 5)
    if kernel is not None:
        failing_at(monkeypatch, "copy_file_range", 0, OSError(kernel, "no"))
    proto = model_with_weights(source, *files, gap=gap)
    save_model(proto, source / "m.onnx", str(source))
    proto.graph.initializer[0].external_data.add(key="prepacked_0", value="of the old file")
    before, sources = proto.SerializeToString(), files_of(source)
    save_model(proto, out / "new.onnx", str(source))
    assert proto.SerializeToString() == before
    assert files_of(source) == sources
    assert sorted(os.listdir(out)) == ["new.onnx", data_of(out, "new.onnx").name]

    saved = read(out / "new.onnx")
    for old, new in zip(proto.graph.initializer, saved.graph.initializer, strict=True):
        entries = {entry.key: entry.value for entry in new.external_data}
        assert set(entries) == {"location", "offset", "length"}
        assert entries["location"] == data_of(out, "new.onnx").name
        assert int(entries["offset"]) % 4096 == 0
        assert np.array_equal(tensors.to_numpy(new, str(out)), tensors.to_numpy(old, str(source)))
    saved.graph.ClearField("initializer")
    proto.graph.ClearField("initializer")
    assert saved == proto

    expected = run(source / "m.onnx")
    for name in files:
        (source / name).unlink()
    assert np.array_equal(run(out / "new.onnx"), expected)
    save_model(read(out / "new.onnx"), source / "again.onnx", str(out))
    assert np.array_equal(run(source / "again.onnx"), expected)


def test_a_region_that_two_tensors_share_is_copied_once_and_two_saves_are_byte_equal(source, out):
    proto = model_with_weights(source, "weights.bin", gap=3)
    proto.graph.initializer.append(proto.graph.initializer[0])
    save_model(proto, out / "m.onnx", str(source))
    assert data_of(out).stat().st_size == 4096 + 8
    saved = read(out / "m.onnx").graph.initializer
    assert saved[2].external_data == saved[0].external_data
    first = files_of(out)
    save_model(proto, out / "m.onnx", str(source))
    assert files_of(out) == first


def add_empty_tensors(source, proto):
    """One that is alone in its file, and one at the end of a file, beyond all that others need."""
    (source / "other.bin").write_bytes(b"x" * 9000)
    for location in ("other.bin", "weights.bin"):
        tensor = proto.graph.initializer.add(name=f"empty-{location}", data_type=1, dims=[0])
        add_entries(tensor, location=location, offset=(source / location).stat().st_size)


def test_tensors_of_no_elements(source, out):
    proto = model_with_weights(source, "weights.bin", gap=3)
    add_empty_tensors(source, proto)
    for path in (out / "a.onnx", out / "b.onnx"):
        save_model(proto, path, str(source))
        for tensor in read(path).graph.initializer:
            assert tensors.to_numpy(tensor, str(out)).nbytes == tensors.nbytes(tensor)
        del proto.graph.initializer[:2]
    assert data_of(out, "b.onnx").read_bytes() == b""


def test_weights_of_nested_bodies_come_along(source, out):
    proto = model_with_weights(source, "weights.bin")
    inner = (
        proto.graph.node.add(op_type="If")
        .attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        .g
    )
    inner.initializer.append(proto.graph.initializer[0])
    save_model(proto, out / "m.onnx", str(source))
    assert external.file_names(external.external_tensors(read(out / "m.onnx"))) == {
        data_of(out).name
    }
    assert external.file_names(external.external_tensors(proto)) == {"weights.bin"}


@pytest.mark.skipif(sys.platform != "linux", reason="FICLONE is Linux's")
def test_where_files_can_share_blocks_one_source_is_shared_whole(source, out, monkeypatch):
    import fcntl

    requests = []

    def ioctl(destination, request, original):
        requests.append(request)
        os.write(destination, os.pread(original, 1 << 20, 0))

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    proto = model_with_weights(source, "weights.bin", gap=3)
    add_empty_tensors(source, proto)
    save_model(proto, out / "m.onnx", str(source))
    assert requests == [0x40049409]
    assert data_of(out).read_bytes() == (source / "weights.bin").read_bytes()
    saved = read(out / "m.onnx").graph.initializer
    assert [entry.value for entry in saved[1].external_data] == [data_of(out).name, "30", "8"]
    assert [external.locate(tensor, str(out)).length for tensor in saved] == [24, 8, 0, 0]


@pytest.mark.parametrize(("files", "gap"), [(["w.bin", "b.bin"], 0), (["weights.bin"], 5000)])
def test_several_sources_or_a_mostly_unused_one_are_not_shared_whole(
    source, out, monkeypatch, files, gap
):
    monkeypatch.setattr(save, "_clone", lambda source, destination: pytest.fail("cloned"))
    save_model(model_with_weights(source, *files, gap=gap), out / "m.onnx", str(source))
    assert data_of(out).stat().st_size == 4096 + 8


def old_pair(source, out):
    save_model(model_with_weights(source, "old.bin", seed=1), out / "m.onnx", str(source))
    (out / "m.onnx").chmod(0o600)


@pytest.mark.parametrize("error", [NO_SPACE, KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("old", [True, False], ids=["old", "new"])
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("write", 1),
        ("copy_file_range", 2),
        ("fsync", 2),
        ("replace", 2),
        ("lseek", 2),
        ("chmod", 0),
    ],
)
def test_a_failure_at_any_step_leaves_both_old_files_alone(source, out, name, steps, old, error):
    if old:
        old_pair(source, out)
        steps += {"chmod": 2}.get(name, 0)
    proto = model_with_weights(source, "weights.bin", gap=9000)
    model, before, sources = proto.SerializeToString(), files_of(out), files_of(source)
    for step in range(steps):
        with pytest.MonkeyPatch.context() as patch:
            failing_at(patch, name, step, error)
            expected = (
                r"^cannot write '.*m\.onnx': No space left on device; "
                if error is NO_SPACE
                else None
            )
            with pytest.raises((OutputError, KeyboardInterrupt), match=expected):
                save_model(proto, out / "m.onnx", str(source))
        assert files_of(out) == before
        assert proto.SerializeToString() == model
        assert files_of(source) == sources
    with pytest.MonkeyPatch.context() as patch:
        calls = failing_at(patch, name, -1, error)
        save_model(proto, out / "m.onnx", str(source))
    assert len(calls) == steps
    assert sorted(os.listdir(out)) == ["m.onnx", data_of(out).name]
    assert files_of(out)[data_of(out).name][1] == (
        0o600 if old else stat.S_IMODE((source / "weights.bin").stat().st_mode)
    )


def test_an_interrupt_after_the_last_step_does_not_take_the_weights_back(source, out, monkeypatch):
    old_pair(source, out)
    proto = model_with_weights(source, "weights.bin")
    save_model(proto, source / "m.onnx", str(source))
    real = os.replace

    def replace(old, new):
        real(old, new)
        if str(new).endswith("m.onnx"):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        save_model(proto, out / "m.onnx", str(source))
    assert np.array_equal(run(out / "m.onnx"), run(source / "m.onnx"))
    assert sorted(os.listdir(out)) == ["m.onnx", data_of(out).name]


def test_a_source_that_is_missing(source, out):
    old_pair(source, out)
    proto = model_with_weights(source, "w.bin", "b.bin")
    (source / "b.bin").unlink()
    before = files_of(out)
    with pytest.raises(ModelError, match="tensor 'b'"):
        save_model(proto, out / "m.onnx", str(source))
    with pytest.raises(ModelError, match=r"tensor 'w'.*the model has no directory"):
        save_model(proto, out / "m.onnx", None)
    assert files_of(out) == before


def test_a_source_that_is_cut_short_while_it_is_copied(source, out, monkeypatch):
    proto = model_with_weights(source, "weights.bin", gap=9000)
    before = proto.SerializeToString()
    monkeypatch.setattr(
        os, "copy_file_range", lambda *arguments: os.truncate(source / "weights.bin", 9001) or 0
    )
    with pytest.raises(ModelError, match=r"weights.bin' was cut short while it was copied"):
        save_model(proto, out / "m.onnx", str(source))
    assert os.listdir(out) == []
    assert proto.SerializeToString() == before


@pytest.mark.parametrize(
    ("weights", "output"),
    [
        ("m.onnx", "m.onnx"),
        ("sub/m.onnx", "sub/m.onnx"),
        ("w.bin", "link.onnx"),
    ],
)
def test_weights_that_are_read_are_never_overwritten(source, weights, output):
    proto = model_with_weights(source, weights)
    (source / "link.onnx").symlink_to("w.bin")
    before = files_of(source)
    with pytest.raises(OutputError, match="the model reads its weights from it"):
        save_model(proto, source / output, str(source))
    assert files_of(source) == before


def test_the_input_file_itself_can_be_replaced(source):
    proto = model_with_weights(source, "weights.bin")
    save_model(proto, source / "m.onnx", str(source))
    proto.producer_name = "again"
    save_model(proto, source / "m.onnx", str(source))
    assert onnx.load(source / "m.onnx").producer_name == "again"


def test_weights_are_neither_lost_behind_a_link_nor_written_through_one(source, out):
    proto = model_with_weights(source, "weights.bin")
    (source / "m.onnx").symlink_to(out / "real.onnx")
    with pytest.raises(
        OutputError, match=r"is a symbolic link into another directory.*name the file itself"
    ):
        save_model(proto, source / "m.onnx", str(source))
    assert os.listdir(out) == []
    save_model(proto, out / "m.onnx", str(source))
    (data := data_of(out)).unlink()
    (source / "precious").write_bytes(b"old")
    data.symlink_to(source / "precious")
    save_model(proto, out / "m.onnx", str(source))
    assert not data.is_symlink()
    assert (source / "precious").read_bytes() == b"old"


@pytest.mark.parametrize("name", ["a\\b.onnx", "C:m.onnx", "a\nb.onnx", os.fsdecode(b"\xff.onnx")])
def test_names_that_models_cannot_refer_to(source, out, name):
    with pytest.raises(OutputError, match="rename the output"):
        save_model(model_with_weights(source, "weights.bin"), out / name, str(source))
    assert os.listdir(out) == []


def test_a_directory_in_the_place_of_the_weights(source, out):
    proto = model_with_weights(source, "weights.bin")
    save_model(proto, out / "m.onnx", str(source))
    (data := data_of(out)).unlink()
    data.mkdir()
    (out / "m.onnx").unlink()
    with pytest.raises(OutputError, match="names a directory"):
        save_model(proto, out / "m.onnx", str(source))
    assert os.listdir(out) == [data.name]


def test_the_weights_of_an_earlier_compile_go_and_all_else_stays(source, out):
    """Also those that a killed process had put in place without its model."""
    others = ["m.onnx.data", "m.onnx.abc.data", f"n.onnx.{0:032}.data", f"m.onnx.{0:032}.data.bak"]
    for name in [*others, f"m.onnx.{0:032}.data"]:
        (out / name).write_bytes(b"")
    for seed in (1, 2):
        save_model(model_with_weights(source, "w.bin", seed=seed), out / "m.onnx", str(source))
    own = external.file_names(external.external_tensors(read(out / "m.onnx")))
    assert {*os.listdir(out)} == {"m.onnx", *own, *others}


def test_the_weights_of_an_earlier_compile_stay_where_a_copy_of_it_reads_them(source, out):
    save_model(model_with_weights(source, "w.bin", seed=1), out / "m.onnx", str(source))
    (first,) = external.file_names(external.external_tensors(read(out / "m.onnx")))
    shutil.copy(out / "m.onnx", out / "best")
    (out / "empty").write_bytes(b"")
    for seed in (2, 3):
        save_model(model_with_weights(source, "w.bin", seed=seed), out / "m.onnx", str(source))
    (last,) = external.file_names(external.external_tensors(read(out / "m.onnx")))
    assert {*os.listdir(out)} == {"m.onnx", "best", "empty", first, last}
    onnx.load(out / "best")


def test_weights_of_such_a_name_that_the_model_itself_reads_stay(source):
    name = f"sub/m.onnx.{0:032}.data"
    proto = model_with_weights(source, name)
    save_model(proto, source / "sub" / "m.onnx", str(source))
    assert (source / name).exists()


# -- what a killed process leaves -----------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from gehost.ir.files import save
if sys.argv[2] == "die":
    save.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
else:
    save.os.replace = lambda *_: print("here", flush=True) or sys.stdin.read()
save.write_bytes_atomic(sys.argv[1], b"new")
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="processes are not known")
def test_what_a_killed_process_left_goes_with_the_next_file_of_that_name(tmp_path):
    run = [sys.executable, "-c", KILLED, str(tmp_path / "m.onnx")]
    subprocess.run([*run, "die"], check=False)
    subprocess.run([*run[:-1], str(tmp_path / "other"), "die"], check=False)
    living = subprocess.Popen([*run, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        living.stdout.readline()
        temporary = {path.name for path in tmp_path.glob(".gehost-*.tmp")}
        assert len(temporary) == 2  # it has removed what the first one left
        (tmp_path / ".gehost-mine.tmp").write_bytes(b"")
        write_bytes_atomic(tmp_path / "m.onnx", b"newer")
        rest = {path.name for path in tmp_path.glob(".gehost-*.tmp")} - {".gehost-mine.tmp"}
        assert rest == temporary  # the living process's, and that of the other name
        assert (tmp_path / "m.onnx").read_bytes() == b"newer"
    finally:
        living.kill()
        living.communicate()
    write_bytes_atomic(tmp_path / "m.onnx", b"newest")
    write_bytes_atomic(tmp_path / "other", b"newest")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".gehost-mine.tmp",
        "m.onnx",
        "other",
    ]


def test_a_number_that_another_process_has_by_now_does_not_keep_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(save, "_started", lambda pid: 1)
    stale, strange = (Path(save._beside(str(tmp_path / "m.onnx"))) for _ in range(2))
    strange = strange.with_name(strange.name.replace(f"-{save._namespace()}-", "-123-"))
    stale.write_bytes(b"")
    strange.write_bytes(b"")
    monkeypatch.setattr(save, "_started", lambda pid: 2)
    write_bytes_atomic(tmp_path / "m.onnx", b"")
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", strange.name}
