"""XLA's fusions beside those of gehost's passes."""

from __future__ import annotations

from gehost import Host, HostOptions
from gehost_hlo import parse, xla_fusions
from gehost_hlo.fusions import stack_frames, vendor_fusions

from .recorded import imported, programs

VENDORS = ["gehost:onnx", "gehost:openxla"]


def test_the_fusions_of_a_text() -> None:
    text = """
    f { p = f32[2] parameter(0) a = f32[2] negate(p), metadata={op_name="x/neg"} ROOT b = f32[2] exponential(a), metadata={op_name="x/exp"} }
    ENTRY e { p = f32[2] parameter(0) ROOT fusion.1 = f32[2] fusion(p), kind=kLoop, calls=%f, metadata={op_name="x/exp"} }
    """
    (fusion,) = xla_fusions(parse(text))
    assert (fusion.name, fusion.computation, fusion.calls, fusion.kind, fusion.size) == (
        "fusion.1",
        "e",
        "f",
        "kLoop",
        2,
    )
    assert (fusion.instructions, fusion.op_names) == (
        {"negate": 1, "exponential": 1},
        ("x/neg", "x/exp"),
    )


def test_frames_tell_two_layers_of_one_function_apart() -> None:
    text = (
        'HloModule m\nFileNames\n1 "a.py"\nFunctionNames\n1 "f"\nFileLocations\n1 {file_name_id=1 line=5 column=1}\n2 {file_name_id=1 line=9 column=2}\n'
        "StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}\n\nENTRY e { x = f32[] constant(1) }"
    )
    assert stack_frames(parse(text)) == {"1": "a.py:5:1", "2": "a.py:9:2 < a.py:5:1"}


def test_a_block_of_a_transformer_is_fused_by_vendors_as_shipped() -> None:
    program = programs()["corpus/block"]
    before = imported(program.text)
    after, _ = Host(HostOptions(vendors=VENDORS)).run(before)
    ours = vendor_fusions(parse(program.text), before, after)
    fused = sorted(row.op for row in ours if row.op in {"LayerNormalization", "Gelu", "Softmax"})
    assert fused == ["Gelu", "LayerNormalization", "LayerNormalization", "Softmax"]
    table = xla_fusions(parse(program.after), ours)
    beside = {
        row.node: [fusion.name for fusion in table if row in fusion.vendor]
        for row in ours
        if row.op in fused
    }
    assert all(beside.values())
    first, second = (
        names for node, names in sorted(beside.items()) if node.startswith("LayerNormalization")
    )
    assert not {*first} & {*second}
