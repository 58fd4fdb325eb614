"""External data that leads elsewhere, or to what is not there: refused when the model is read, whatever would read it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, TensorProto

from gehost.ir.tensors import to_numpy

WEIGHTS = np.arange(1000, dtype=np.float32)
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1000] x, bool c) => (float[1000] y) {
    a = Add(x, w)
    y = If(c) <then_branch = t () => (float[1000] p) { p = Neg(a) }, else_branch = e () => (float[1000] q) { q = Abs(a) }>
}"""


def external(**fields: Any) -> TensorProto:
    """A tensor of a thousand floats in ``weights.bin``; ``entries`` replaces or adds some, None takes one away."""
    entries = {
        "location": "weights.bin",
        "offset": "0",
        "length": "4000",
        **fields.pop("entries", {}),
    }
    tensor = TensorProto(
        **{
            "name": "w",
            "data_type": 1,
            "dims": [1000],
            "data_location": TensorProto.EXTERNAL,
            **fields,
        }
    )
    for key, value in entries.items():
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    return tensor


def model(
    tensor: TensorProto, place: Callable[[ModelProto], GraphProto] = lambda proto: proto.graph
) -> bytes:
    proto = onnx.parser.parse_model(TEXT)
    place(proto).initializer.append(tensor)
    if not proto.graph.initializer:
        proto.graph.node[0].input[1] = "x"
    return proto.SerializeToString()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The model's directory, with good weights, and what else a location may name; nothing in it is changed."""
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    for path in (home / "weights.bin", home / "sub" / "weights.bin", tmp_path / "outside.bin"):
        path.write_bytes(WEIGHTS.tobytes())
    (home / "short.bin").write_bytes(WEIGHTS.tobytes()[:-1])
    (home / "empty.bin").write_bytes(b"")
    (home / "link.bin").symlink_to("weights.bin")
    (home / "stolen.bin").symlink_to(tmp_path / "outside.bin")
    (home / "dangling.bin").symlink_to("nowhere")
    (home / "linked").symlink_to("sub")
    (home / "up").symlink_to(tmp_path)
    os.link(tmp_path / "outside.bin", home / "hard.bin")
    os.mkfifo(home / "fifo")
    before = sorted(os.listdir(home))
    yield home
    (home / "m.onnx").unlink()
    assert sorted(os.listdir(home)) == before
    assert (tmp_path / "outside.bin").read_bytes() == WEIGHTS.tobytes()


LOCATIONS = {
    "the parent": ("../outside.bin", "leaves the model's directory"),
    "the parent of a directory": ("sub/../../outside.bin", "leaves the model's directory"),
    "back where it was": ("sub/../weights.bin", "leaves the model's directory"),
    "absolute": ("/etc/passwd", "is an absolute path"),
    "a drive": ("C:\\weights.bin", "has a backslash"),
    "a symbolic link": ("link.bin", "is a symbolic link"),
    "a symbolic link out": ("stolen.bin", "is a symbolic link"),
    "a dangling link": ("dangling.bin", "is a symbolic link"),
    "a symbolic link on the way": ("linked/weights.bin", "is a symbolic link"),
    "a symbolic link on the way out": ("up/outside.bin", "is a symbolic link"),
    "a hard link": ("hard.bin", "is a hard link"),
    "a fifo": ("fifo", "is not a regular file"),
    "a directory": ("sub", "is not a regular file"),
    "a file that is missing": ("nowhere.bin", "No such file or directory"),
    "below a file": ("weights.bin/x", "Not a directory"),
    "empty": ("", "is empty"),
    "missing": (None, "is empty"),
    "a nul": ("weights.bin\0.png", "has a NUL character"),
    "a newline": ("weights\n.bin", "No such file"),
    "very long": ("x" * 100_000, "File name too long"),
}
ENTRIES: dict[str, tuple[dict[str, Any], str]] = {
    "offset negative": ({"entries": {"offset": "-1"}}, "offset '-1' is not a whole number"),
    "length negative": ({"entries": {"length": "-4000"}}, "length '-4000' is not a whole number"),
    "offset no number": ({"entries": {"offset": "first"}}, "offset 'first' is not a whole number"),
    "length no number": ({"entries": {"length": "4e3"}}, "length '4e3' is not a whole number"),
    "offset 2**64": (
        {"entries": {"offset": str(2**64)}},
        "is not a whole number from 0 to 2**63 - 1",
    ),
    "length 2**64 and what it takes": (
        {"entries": {"length": str(2**64 + 4000)}},
        "is not a whole number",
    ),
    "offset past the end": ({"entries": {"offset": "4001"}}, "bytes 4001 to 8001 are not within"),
    "end past the end": ({"entries": {"offset": "1"}}, "bytes 1 to 4001 are not within"),
    "offset almost 2**63": ({"entries": {"offset": str(2**63 - 1)}}, "are not within"),
    "length too short": (
        {"entries": {"length": "3996"}},
        "length 3996, but its type and shape take 4000",
    ),
    "length too long": (
        {"entries": {"length": "4004"}},
        "length 4004, but its type and shape take 4000",
    ),
    "length zero": ({"entries": {"length": "0"}}, "length 0, but its type and shape take 4000"),
    "file too short": ({"entries": {"location": "short.bin"}}, "which has 3999"),
    "file too short for the shape": (
        {"dims": [2000], "entries": {"length": None}},
        "bytes 0 to 8000 are not within",
    ),
    "file empty": ({"entries": {"location": "empty.bin"}}, "which has 0"),
    "negative dimension": ({"dims": [-1000]}, "dimension -1000 is negative"),
    "overflowing dimensions": ({"dims": [1 << 40, 1 << 40]}, "its dimensions overflow"),
    "no dimensions": (
        {"dims": [], "entries": {"length": None, "offset": "3997"}},
        "bytes 3997 to 4001 are not within",
    ),
    "unknown element type": ({"data_type": 99}, "element type 99"),
    "strings": ({"data_type": TensorProto.STRING}, "strings cannot be external data"),
    "data in the model too": ({"raw_data": bytes(4000)}, "it has data in raw_data"),
}
HOSTILE = {
    **{
        name: ({"entries": {"location": location}}, message)
        for name, (location, message) in LOCATIONS.items()
    },
    **ENTRIES,
}
hostile = pytest.mark.parametrize(("fields", "message"), HOSTILE.values(), ids=HOSTILE)


@hostile
def test_it_is_refused_whatever_reads_it(refused, home, fields, message):
    (home / "m.onnx").write_bytes(model(external(**fields)))
    line = refused(3, home / "m.onnx")
    assert "tensor 'w': " in line
    assert message in line
    assert len(line) < 1500


@hostile
def test_it_is_refused_where_nothing_would_read_it(gehost_run, home, fields, message):
    (home / "m.onnx").write_bytes(model(external(**fields)))
    before = (home / "m.onnx").read_bytes()
    code, out, err = gehost_run("compile", home / "m.onnx", "-o", home / "m.onnx", "--no-cleanup")
    assert (code, out) == (3, "")
    assert message in err
    assert (home / "m.onnx").read_bytes() == before


@hostile
def test_it_is_refused_by_a_bare_file_name_in_its_directory(
    gehost_run, home, monkeypatch, fields, message
):
    (home / "m.onnx").write_bytes(model(external(**fields)))
    monkeypatch.chdir(home)
    code, out, err = gehost_run("compile", "m.onnx", "-o", "../out.onnx")
    assert (code, out) == (3, "")
    assert err.startswith("gehost: m.onnx: tensor 'w': ")
    assert message in err
    assert not (home.parent / "out.onnx").exists()


PLACES: dict[str, Callable[[ModelProto], GraphProto]] = {
    "a body": lambda proto: proto.graph.node[1].attribute[0].g,
    "training information": lambda proto: proto.training_info.add().algorithm,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_it_is_found_wherever_a_tensor_can_be(refused, home, place):
    (home / "m.onnx").write_bytes(
        model(external(name="v", entries={"location": "../outside.bin"}), place)
    )
    assert "tensor 'v': external data location '../outside.bin' leaves" in refused(
        3, home / "m.onnx"
    )


@pytest.mark.parametrize("attribute", ["value", "sparse_value"])
def test_it_is_found_in_attributes(refused, home, attribute):
    proto = ModelProto.FromString(model(external()))
    node = proto.graph.node.add(op_type="Constant", output=["k"])
    entry = node.attribute.add(name=attribute)
    tensor = external(name="k", entries={"location": "../outside.bin"})
    if attribute == "value":
        entry.type = onnx.AttributeProto.TENSOR
        entry.t.CopyFrom(tensor)
    else:
        entry.type = onnx.AttributeProto.SPARSE_TENSOR
        entry.sparse_tensor.dims.append(5000)
        entry.sparse_tensor.values.CopyFrom(tensor)
        entry.sparse_tensor.indices.CopyFrom(onnx.numpy_helper.from_array(np.arange(1000), "i"))
    (home / "m.onnx").write_bytes(proto.SerializeToString())
    assert "tensor 'k': external data location '../outside.bin' leaves" in refused(
        3, home / "m.onnx"
    )


# -- and what is in order -------------------------------------------------------------------------------------------

KEYS = {"checksum": "0" * 40, "basepath": "/etc", "prepacked_0": "x|0;1;", "": "", "\0": "\0"}


@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside the input", "elsewhere"])
def test_good_weights_come_along_and_unknown_keys_do_no_harm(gehost_run, home, elsewhere):
    (home / "m.onnx").write_bytes(model(external(entries=KEYS)))
    target = home.parent / "target"
    target.mkdir()
    output = (target if elsewhere else home) / "out.onnx"
    code, _, err = gehost_run(
        "compile",
        home / "m.onnx",
        "-o",
        output,
        "--dump",
        target / "dumps",
        "--dump-format",
        "onnx",
    )
    assert (code, err) == (0, "")
    tensor = onnx.load(output, load_external_data=False).graph.initializer[0]
    entries = {entry.key: entry.value for entry in tensor.external_data}
    data = next(target.glob("out.onnx.*.data"), home)
    assert entries == (
        {"location": data.name, "offset": "0", "length": "4000"}
        if elsewhere
        else {"location": "weights.bin", "offset": "0", "length": "4000", **KEYS}
    )
    assert np.array_equal(to_numpy(tensor, str(output.parent)), WEIGHTS)
    for dump in (target / "dumps").iterdir():
        (tensor,) = onnx.load(dump, load_external_data=False).graph.initializer
        assert tensor.external_data[0].value == "weights.bin"
    assert sorted(path.name for path in target.iterdir()) == [
        "dumps",
        *(["out.onnx", data.name] if elsewhere else []),
    ]
    (home / "out.onnx").unlink(missing_ok=True)


def test_weights_that_are_cut_short_meanwhile_leave_both_old_files(refused, home, vendors):
    cut = f"\n@hookimpl\ndef gehost_compile_finished(graph):\n    open({str(home / 'weights.bin')!r}, 'wb').close()\n"
    vendors.write("acme/a.py", cut)
    (home / "m.onnx").write_bytes(model(external()))
    assert "are not within" in refused(3, home / "m.onnx", "--vendors", vendors.root)
    shutil.copy(home.parent / "outside.bin", home / "weights.bin")
