from __future__ import annotations

import os
import threading

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto

from gehost.errors import ModelError
from gehost.ir.files import external
from gehost.ir.files.external import ExternalLocation

CONTENT = bytes(range(100))


def external_tensor(
    name="w", dims=(4,), data_type=TensorProto.FLOAT, **entries: str
) -> TensorProto:
    tensor = TensorProto(
        name=name, data_type=data_type, dims=dims, data_location=TensorProto.EXTERNAL
    )
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.fixture
def model_dir(tmp_path):
    directory = tmp_path / "model"
    (directory / "sub").mkdir(parents=True)
    for name in ("w.bin", "sub/w.bin", "ünï côdé.bin", "..w.bin"):
        (directory / name).write_bytes(CONTENT)
    (directory / "empty.bin").write_bytes(b"")
    (tmp_path / "outside.bin").write_bytes(CONTENT)
    (directory / "link.bin").symlink_to("w.bin")
    (directory / "dangling.bin").symlink_to("nowhere")
    (directory / "loop.bin").symlink_to("loop.bin")
    (directory / "linked").symlink_to("sub")
    (directory / "up").symlink_to(tmp_path)
    (directory / "one.bin").write_bytes(CONTENT)
    os.link(directory / "one.bin", directory / "two.bin")
    os.link(tmp_path / "outside.bin", directory / "stolen.bin")
    os.mkfifo(directory / "fifo.bin")
    return directory


@pytest.mark.parametrize(
    ("entries", "path", "offset", "length"),
    [
        ({"location": "w.bin"}, "w.bin", 0, 16),
        ({"location": "sub/w.bin", "offset": "8"}, "sub/w.bin", 8, 16),
        ({"location": "./sub//./w.bin", "offset": "84", "length": "16"}, "sub/w.bin", 84, 16),
        ({"location": "ünï côdé.bin"}, "ünï côdé.bin", 0, 16),
        ({"location": "..w.bin"}, "..w.bin", 0, 16),
        (
            {"location": "w.bin", "checksum": "0", "prepacked_0": "x|0;1;", "basepath": "/"},
            "w.bin",
            0,
            16,
        ),
    ],
    ids=["file", "directory", "dots", "unicode", "two-dots-in-a-name", "other-keys"],
)
def test_locations_that_are_accepted(model_dir, entries, path, offset, length):
    location = external.locate(external_tensor(**entries), str(model_dir))
    assert location == ExternalLocation(str(model_dir / path), offset, length)
    assert external.map_data(location).tobytes() == CONTENT[offset : offset + length]


def test_base_dir_of_a_bare_file_name_is_the_working_directory(model_dir, monkeypatch):
    monkeypatch.chdir(model_dir)
    location = external.locate(external_tensor(location="w.bin"), os.path.dirname("model.onnx"))
    assert location.path == str(model_dir / "w.bin")


def test_base_dir_may_itself_be_a_link(model_dir, tmp_path):
    (tmp_path / "alias").symlink_to(model_dir)
    assert external.locate(external_tensor(location="w.bin"), str(tmp_path / "alias")).length == 16


HOSTILE_LOCATIONS = {
    "absolute": ("/etc/passwd", "is an absolute path"),
    "double slash": ("//server/share", "is an absolute path"),
    "drive": ("C:/w.bin", "is an absolute path"),
    "drive, relative": ("c:w.bin", "is an absolute path"),
    "backslash": ("sub\\w.bin", "backslash"),
    "backslash parent": ("..\\outside.bin", "backslash"),
    "unc": ("\\\\server\\share", "backslash"),
    "parent": ("../outside.bin", "leaves the model's directory"),
    "parent inside": ("sub/../w.bin", "leaves the model's directory"),
    "parent at the end": ("sub/..", "leaves the model's directory"),
    "empty": ("", "is empty"),
    "blank": ("  ", "is empty"),
    "nul": ("w.bin\0.txt", "NUL"),
    "missing": ("nowhere.bin", "No such file.*put the file beside the model"),
    "below a file": ("w.bin/x", "Not a directory"),
    "too long": ("x" * 10_000, "File name too long"),
    "onnxruntime's memory address": ("*/_ORT_MEM_ADDR_/*", "No such file"),
    "symlink": ("link.bin", "is a symbolic link"),
    "dangling symlink": ("dangling.bin", "is a symbolic link"),
    "symlink to itself": ("loop.bin", "is a symbolic link"),
    "symlink on the way": ("linked/w.bin", "is a symbolic link"),
    "symlink out": ("up/outside.bin", "is a symbolic link"),
    "hard link": ("two.bin", "is a hard link"),
    "hard link to a file outside": ("stolen.bin", "is a hard link"),
    "fifo": ("fifo.bin", "is not a regular file"),
    "directory": ("sub", "is not a regular file"),
    "the directory itself": (".", "is not a regular file"),
    "newline": ("a\nb", r"a\\nb"),
}


@pytest.mark.parametrize(("location", "message"), HOSTILE_LOCATIONS.values(), ids=HOSTILE_LOCATIONS)
def test_hostile_locations(model_dir, location, message):
    with pytest.raises(ModelError, match=f"^tensor 'w': .*{message}") as caught:
        external.locate(external_tensor(location=location), str(model_dir))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_device_as_location(model_dir):
    with pytest.raises(ModelError, match="is not a regular file"):
        external.locate(external_tensor(location="null"), "/dev")


HOSTILE_NUMBERS = {
    "negative offset": ({"offset": "-1"}, "offset '-1' is not a whole number"),
    "negative length": ({"length": "-16"}, "length '-16' is not a whole number"),
    "signed": ({"offset": "+1"}, "offset .* is not a whole number"),
    "blank": ({"offset": " 1"}, "offset .* is not a whole number"),
    "newline": ({"offset": "1\n"}, "offset .* is not a whole number"),
    "no number": ({"offset": ""}, "offset .* is not a whole number"),
    "word": ({"length": "all"}, "length .* is not a whole number"),
    "hexadecimal": ({"offset": "0x10"}, "offset .* is not a whole number"),
    "fraction": ({"length": "16.0"}, "length .* is not a whole number"),
    "underscore": ({"offset": "1_0"}, "offset .* is not a whole number"),
    "digits of another script": ({"offset": "\u0661"}, "offset .* is not a whole number"),
    "2**63": ({"offset": str(2**63)}, "offset .* is not a whole number"),
    "2**64": ({"offset": str(2**64)}, "offset .* is not a whole number"),
    "a million digits": ({"offset": "1" * 1_000_000}, "offset .* is not a whole number"),
    "2**63 - 1": ({"offset": str(2**63 - 1)}, "are not within .*which has 100"),
    "offset beyond the file": ({"offset": "101"}, "are not within .*which has 100"),
    "end beyond the file": ({"offset": "85"}, "bytes 85 to 101 are not within .*which has 100"),
    "file too short": ({"location": "empty.bin"}, "bytes 0 to 16 are not within .*which has 0"),
    "length too short": ({"length": "15"}, "length 15, but its type and shape take 16"),
    "length too long": ({"length": "17"}, "length 17, but its type and shape take 16"),
    "length zero": ({"length": "0"}, "length 0, but its type and shape take 16"),
}


@pytest.mark.parametrize(("entries", "message"), HOSTILE_NUMBERS.values(), ids=HOSTILE_NUMBERS)
def test_hostile_offsets_and_lengths(model_dir, entries, message):
    with pytest.raises(ModelError, match=f"^tensor 'w': .*{message}") as caught:
        external.locate(external_tensor(**{"location": "w.bin", **entries}), str(model_dir))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


HOSTILE_TENSORS = {
    "negative dimension": ({"dims": [-4]}, "dimension -4 is negative"),
    "overflow": ({"dims": [2**62, 4]}, "overflow"),
    "huge": ({"dims": [2**40]}, "are not within"),
    "unknown type": ({"data_type": 77}, "element type 77"),
    "strings": ({"data_type": TensorProto.STRING}, "strings cannot be external"),
}


@pytest.mark.parametrize(("fields", "message"), HOSTILE_TENSORS.values(), ids=HOSTILE_TENSORS)
def test_hostile_shapes_and_types(model_dir, fields, message):
    with pytest.raises(ModelError, match=f"^tensor 'w': .*{message}"):
        external.locate(external_tensor(location="w.bin", **fields), str(model_dir))


@pytest.mark.parametrize("key", ["location", "offset", "length", "checksum"])
def test_a_key_given_twice(model_dir, key):
    tensor = external_tensor(location="w.bin", offset="0", length="16", checksum="0")
    tensor.external_data.add(key=key, value="4")
    with pytest.raises(ModelError, match=f"two entries '{key}'"):
        external.locate(tensor, str(model_dir))


def test_a_location_that_is_not_utf8(model_dir):
    tensor = external_tensor()
    tensor.external_data.append(
        onnx.StringStringEntryProto.FromString(b"\x0a\x08location\x12\x02\xff\xfe")
    )
    with pytest.raises(ModelError, match="tensor 'w'"):
        external.locate(tensor, str(model_dir))


def test_no_location(model_dir):
    with pytest.raises(ModelError, match="is empty"):
        external.locate(external_tensor(), str(model_dir))


def test_a_model_without_a_directory():
    with pytest.raises(ModelError, match=r"tensor 'w'.*the model has no directory"):
        external.locate(external_tensor(location="w.bin"), None)


@pytest.mark.parametrize("other", ["fifo.bin", "sub"])
def test_what_takes_the_place_of_the_file_meanwhile_neither_blocks_nor_is_read(model_dir, other):
    location = external.locate(external_tensor(location="w.bin"), str(model_dir))
    (model_dir / "w.bin").unlink()
    (model_dir / other).rename(model_dir / "w.bin")
    caught = []

    def read():
        try:
            external.map_data(location)
        except ModelError as error:
            caught.append(str(error))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(10)
    assert caught
    assert "changed while the model was read" in caught[0]


def test_a_link_that_takes_the_place_of_the_file_is_not_followed(model_dir):
    location = external.locate(external_tensor(location="w.bin"), str(model_dir))
    (model_dir / "w.bin").unlink()
    (model_dir / "w.bin").symlink_to("../outside.bin")
    with pytest.raises(ModelError, match="cannot read external data"):
        external.map_data(location)


def test_a_file_that_was_cut_short_meanwhile(model_dir):
    location = external.locate(external_tensor(location="w.bin", offset="84"), str(model_dir))
    os.truncate(model_dir / "w.bin", 99)
    before = os.listdir("/dev/fd")
    with pytest.raises(ModelError, match="changed while the model was read"):
        external.map_data(location)
    assert os.listdir("/dev/fd") == before


def test_the_map_is_read_only_and_maps(model_dir):
    mapped = external.map_data(
        external.locate(external_tensor(location="w.bin", offset="3"), str(model_dir))
    )
    assert mapped.dtype == np.uint8
    assert not mapped.flags.writeable
    with open(model_dir / "w.bin", "r+b") as file:
        file.write(b"\xff" * 10)
    assert mapped[0] == 0xFF
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1


@pytest.mark.parametrize(("name", "offset"), [("empty.bin", "0"), ("w.bin", "100"), ("w.bin", "0")])
def test_a_tensor_of_no_elements(model_dir, name, offset):
    tensor = external_tensor(dims=[0, 3], location=name, offset=offset)
    location = external.locate(tensor, str(model_dir))
    assert location.length == 0
    mapped = external.map_data(location)
    assert mapped.shape == (0,)
    assert not mapped.flags.writeable


def everywhere() -> onnx.ModelProto:
    """A model with external tensors in every place that a tensor can have, each with its own location."""

    def node(kind: int, **fields: object) -> onnx.NodeProto:
        return onnx.NodeProto(
            op_type="Op", attribute=[AttributeProto(name="a", type=kind, **fields)]
        )

    def tensor(name: str) -> TensorProto:
        return external_tensor(name=name, location=name)

    def graph(name: str) -> onnx.GraphProto:
        return onnx.GraphProto(initializer=[tensor(name)])

    def sparse(name: str) -> onnx.SparseTensorProto:
        return onnx.SparseTensorProto(
            values=tensor(f"{name}-values"), indices=tensor(f"{name}-indices")
        )

    deep = onnx.GraphProto(node=[node(AttributeProto.GRAPH, g=graph("deep"))])
    model = onnx.ModelProto(graph=graph("initializer"))
    model.graph.initializer.append(
        TensorProto(name="embedded", external_data=[{"key": "location", "value": "unused"}])
    )
    model.graph.sparse_initializer.append(sparse("initializer"))
    model.graph.node.extend(
        [
            node(AttributeProto.TENSOR, t=tensor("t")),
            node(AttributeProto.TENSORS, tensors=[tensor("tensors-0"), tensor("tensors-1")]),
            node(AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse("attribute")),
            node(AttributeProto.SPARSE_TENSORS, sparse_tensors=[sparse("attributes")]),
            node(AttributeProto.GRAPH, g=deep),
            node(AttributeProto.GRAPHS, graphs=[graph("graphs-0"), graph("graphs-1")]),
            node(AttributeProto.UNDEFINED, t=tensor("untyped-t")),
            node(AttributeProto.UNDEFINED, g=graph("untyped-g")),
            node(AttributeProto.INT, i=1),
        ]
    )
    function = model.functions.add(
        name="F", node=[node(AttributeProto.TENSOR, t=tensor("function"))]
    )
    function.node.append(node(AttributeProto.GRAPH, g=graph("function-body")))
    function.attribute_proto.append(
        AttributeProto(name="d", type=AttributeProto.TENSOR, t=tensor("default"))
    )
    model.training_info.add(
        initialization=graph("training-initialization"), algorithm=graph("training-algorithm")
    )
    return model


LOCATIONS = {
    *("initializer", "initializer-values", "initializer-indices", "t", "tensors-0", "tensors-1"),
    *("attribute-values", "attribute-indices", "attributes-values", "attributes-indices", "deep"),
    *("graphs-0", "graphs-1", "untyped-t", "untyped-g", "function", "function-body", "default"),
    *("training-initialization", "training-algorithm"),
}


def test_external_files_are_found_wherever_a_tensor_can_be():
    assert external.file_names(external.external_tensors(everywhere())) == LOCATIONS


def test_external_files_lie_beside_the_model(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(everywhere().SerializeToString())
    assert external.external_files(str(path)) == sorted(str(tmp_path / name) for name in LOCATIONS)


def test_external_tensors_are_given_once_each_and_in_the_same_order_every_time():
    names = [tensor.name for tensor in external.external_tensors(everywhere())]
    assert sorted(names) == sorted(LOCATIONS)
    assert names == [tensor.name for tensor in external.external_tensors(everywhere())]


def test_a_model_without_external_data():
    assert external.file_names(external.external_tensors(onnx.ModelProto())) == set()
