"""Reading HLO text: the grammar, what it refuses, and that it is printed as it was read."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from gehost_hlo import HloInstruction, HloSyntaxError, Layout, Operand, Shape, parse, to_text

from .damage import run as read_damaged
from .recorded import programs

SHARED = Path(__file__).parents[4] / "shared" / "hlo"
_BLANK = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|^#[^\n]*|//[^\n]*|\s+', re.DOTALL | re.MULTILINE)

SMALL = """HloModule m, is_scheduled=true

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[2,3]{1,0} parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[2]{0} reduce(x, zero), dimensions={1}, to_apply=add
}
"""


def plain(text: str) -> str:
    """A text without white space and comments outside of strings."""
    return _BLANK.sub(lambda match: match[0] if match[0].startswith('"') else "", text)


def entry(*lines: str) -> str:
    return "ENTRY e {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


@pytest.mark.parametrize("name", sorted(programs()))
def test_recorded_texts_are_printed_as_they_were_read(name: str) -> None:
    program = programs()[name]
    for text in filter(None, (program.text, program.after)):
        module = parse(text)
        printed = to_text(module)
        assert plain(printed) == plain(text)
        assert parse(printed) == module


@pytest.mark.skipif(not SHARED.exists(), reason="the texts of 2020 are not here")
@pytest.mark.parametrize(("name", "count"), [("fused_19.hlo", 6), ("fused_3461.hlo", 46)])
def test_texts_of_2020_are_printed_as_they_were_read(name: str, count: int) -> None:
    text = (SHARED / name).read_text()
    module = parse(text)
    assert [len(computation.instructions) for computation in module.computations] == [count]
    assert plain(to_text(module)) == plain(text)


@pytest.mark.skipif(not SHARED.exists(), reason="the texts of 2020 are not here")
def test_every_field_of_a_text_of_2020() -> None:
    (computation,) = parse((SHARED / "fused_19.hlo").read_text()).computations
    big, flat, scalar = (
        Shape("f32", (4, 49, 1024), Layout((2, 1, 0))),
        Shape("f32", (196, 1024), Layout((1, 0))),
        Shape("f32"),
    )
    body = "training/gradients/transformer/parallel_0_5/transformer/transformer/body/decoder/layer_23_1/ffn"
    norm = f"{body}/layer_prepostprocess/layer_norm"
    assert (computation.name, computation.is_entry, computation.percent) == (
        "fused_computation.19.clone",
        True,
        True,
    )
    assert computation.signature is not None
    assert [(parameter.name, parameter.shape) for parameter in computation.signature] == [
        ("param_0.16672", Shape("f32", (4, 49, 1024))),
        ("param_1.23221", Shape("f32", (196, 1024))),
    ]
    assert computation.result == Shape("f32", (1024,))
    parameter1, reshape, parameter0, multiply, constant, reduce = computation.instructions
    assert (parameter1.name, parameter1.shape, parameter1.opcode, parameter1.literal) == (
        "param_1.23221",
        flat,
        "parameter",
        "1",
    )
    assert (parameter0.name, parameter0.shape, parameter0.literal) == ("param_0.16672", big, "0")
    assert (reshape.name, reshape.shape, reshape.opcode) == ("reshape.13330", big, "reshape")
    assert reshape.operands == (Operand("param_1.23221", flat, percent=True),)
    assert reshape.attributes == {
        "metadata": f'{{op_type="Reshape" op_name="{body}/conv1/Tensordot/Reshape_grad/Reshape"}}'
    }
    assert multiply.operands == (
        Operand("reshape.13330", big, percent=True),
        Operand("param_0.16672", big, percent=True),
    )
    assert multiply.attributes == {
        "metadata": f'{{op_type="Mul" op_name="{norm}/mul_1_grad/Mul_1"}}'
    }
    assert (constant.shape, constant.opcode, constant.literal) == (scalar, "constant", "0")
    assert (reduce.name, reduce.shape, reduce.opcode, reduce.is_root) == (
        "reduce.1954",
        Shape("f32", (1024,), Layout((0,))),
        "reduce",
        True,
    )
    assert reduce.operands == (
        Operand("multiply.14985", big, percent=True),
        Operand("constant.11228", scalar, percent=True),
    )
    target = "training_gradients_transformer_parallel_0_5_transformer_transformer_body_decoder_layer_23_1_ffn"
    assert list(reduce.attributes) == ["dimensions", "to_apply", "metadata"]
    assert reduce.attributes["dimensions"] == "{0,1}"
    assert (
        reduce.attributes["to_apply"]
        == f"%{target}_layer_prepostprocess_layer_norm_mul_1_grad_Sum_1-reduction.48850"
    )
    assert reduce.attributes["metadata"] == f'{{op_type="Sum" op_name="{norm}/mul_1_grad/Sum_1"}}'


def test_the_parts_that_may_be_left_out() -> None:
    bare = parse("f { a = f32[2] parameter(0) b = f32[2] negate(a) }")
    assert (bare.name, bare.entry.name, bare.entry.root.name) == ("", "f", "b")
    assert to_text(bare) == "f {\n  a = f32[2] parameter(0)\n  b = f32[2] negate(a)\n}\n"
    full = parse(
        "HloModule m\n%f (a: f32[2]) -> f32[2] { %a = f32[2]{0} parameter(0) ROOT %b = f32[2]{0} negate(f32[2]{0} %a) }"
    )
    assert full.entry.root.operands == (
        Operand("a", Shape("f32", (2,), Layout((0,))), percent=True),
    )
    assert plain(to_text(full)).startswith("HloModulem%f(a:f32[2])->f32[2]{")


def test_the_entry_and_the_root_may_stand_anywhere() -> None:
    module = parse(
        "ENTRY a { ROOT p = f32[] parameter(0) q = f32[] negate(p) } b { r = f32[] constant(1) }"
    )
    assert (module.entry.name, module.entry.root.name) == ("a", "p")
    assert [computation.is_entry for computation in module.computations] == [True, False]


def test_comments_and_blanks_mean_nothing() -> None:
    text = SMALL.replace(", dimensions", "  ,\n\tdimensions").replace(
        "reduce(x, zero)", "reduce(/*index=0*/x /* } */, // )\n zero )"
    )
    assert parse(f"# a line\n{text}// the end") == parse(SMALL)


@pytest.mark.parametrize(
    "shape",
    [
        "f32[]", "f32[2,3]{1,0}", "f32[]{:T(128)}", "bf16[8,128]{1,0:T(8,128)(2,1)S(1)}", "f32[<=5,3]{1,0}", "f32[?,3]", "()", "(f32[2], (s32[], token[]))",
        "b(f32[2]{0})", "f32[2,2]{1,0:T(2)L(4)#(u32)*(u32)E(4)SC(0:1)M(8)}", "f32[4]{0:P(f32[2]{0})}", "pred[0]", "f8e4m3fn[2]", "s4[3]{0:E(4)}", "f32[]{}",
    ],
)  # fmt: skip
def test_shapes(shape: str) -> None:
    module = parse(entry(f"ROOT x = {shape} parameter(0)"))
    assert str(module.entry.root.shape) == shape
    assert plain(shape) in plain(to_text(module))


def test_a_shape_keeps_dimensions_and_layout_apart() -> None:
    shape = parse(entry("x = bf16[8,<=128]{1,0:T(8,128)(2,1)} parameter(0)")).entry.root.shape
    assert shape == Shape("bf16", (8, 128), Layout((1, 0), "T(8,128)(2,1)"), (1,))


@pytest.mark.parametrize(
    "attribute",
    [
        'metadata={op_name="a, {b} \\" c" source_line=3}', "backend_config={uplo = 76 : ui8}", 'backend_config={"a":{"b":["}"]}}', "window={size=3x3 pad=1_1x0_1}",
        "dim_labels=b01f_01io->b01f", "slice={[0:4], [2:8:2]}", "replica_groups={{0,1},{2,3}}", "replica_groups=[2,4]<=[4,2]T(1,0)", "replica_groups=mesh['x'=2] {'x'}",
        'custom_call_target="x"', "control-predecessors={}", "new_in_2030=yes", "sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}", "a={/* } */1}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("behind", ["", ", other=1"])
def test_attributes_are_kept_as_written(attribute: str, behind: str) -> None:
    module = parse(
        entry(
            "x = f32[2] parameter(0)",
            f"y = f32[2] negate(x), {attribute}{behind}",
            "ROOT z = f32[2] negate(y)",
        )
    )
    name, _, value = attribute.partition("=")
    assert module.entry.instructions[1].attributes[name] == value
    assert len(module.entry.instructions) == 3
    assert plain(f"negate(x),{attribute}{behind}") in plain(to_text(module))


def test_headers_and_tables() -> None:
    text = (
        "HloModule jit_f.1, input_output_alias={ {0}: (0, {}, may-alias) }, entry_computation_layout={(f32[2]{0})->(f32[2]{0})}\n"
        'FileNames\n1 "a b.py"\n2 "c"\nFunctionNames\n1 "f"\nFileLocations\n1 {file_name_id=1 line=2}\nStackFrames\n1 {file_location_id=1}\n'
        'ENTRY %m.1 (p: f32[2]) -> f32[2] { ROOT %p = f32[2]{0} parameter(0) }, execution_thread="main"\n'
    )
    module = parse(text)
    assert module.attributes["input_output_alias"] == "{ {0}: (0, {}, may-alias) }"
    assert [(table.name, len(table.entries)) for table in module.tables] == [
        ("FileNames", 2), ("FunctionNames", 1), ("FileLocations", 1), ("StackFrames", 1),
    ]  # fmt: skip
    assert module.entry.attributes == {"execution_thread": '"main"'}
    assert plain(to_text(module)) == plain(text)


@pytest.mark.parametrize(
    "literal", ["0", "{1, 2}", "{ { 1, -inf }, { nan, nan(0x7) } }", "(1, 2)", "{...}", "({1, 2}, (3))", "{true, /* ) */ false}", '"text"', "{ /*i0=0*/ {1} }"]
)  # fmt: skip
def test_literals_are_kept_as_written(literal: str) -> None:
    module = parse(entry(f"x = f32[2] constant({literal})"))
    assert module.entry.root.literal == literal
    assert plain(literal) in plain(to_text(module))


def test_an_instruction_in_place_of_an_operand() -> None:
    module = parse(
        entry("x = f32[2] parameter(0)", "y = f32[2] add(x, f32[2] negate(f32[2] abs(x)))")
    )
    (_, operand) = module.entry.root.operands
    assert isinstance(operand.instruction, HloInstruction)
    assert operand.instruction.opcode == "negate"
    assert parse(to_text(module)) == module


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("", "1:1", "expected a computation, found the end of the text"),
        ("HloModule", "1:10", 'expected "{" or a signature, found the end of the text'),
        ("ENTRY e {\n  x = f32[2 parameter(0)\n}", "2:7", "expected an opcode|expected a shape"),
        ("ENTRY e {\n  x = f32[2] parameter(0\n}", "3:1", r'expected "\)", found "}"'),
        ("ENTRY e {\n  x = q32[2] parameter(0)\n}", "2:7", 'the type "q32"'),
        ("ENTRY e { x = f32[2]{0,1} parameter(0) }", "1:15", "does not order 1 dimensions"),
        ("ENTRY e { }", "1:7", "is empty"),
        ("ENTRY e { x = f32[] constant(1), a=1, a=2 }", "1:39", 'attribute "a" is given twice'),
        ("ENTRY e { x = f32[] constant(1), a= }", "1:36|1:37", "expected a value"),
        ('ENTRY e { x = f32[] constant(1), a="b }', "1:36", "this string has no end"),
        ("ENTRY e { x = f32[] constant(1)", "1:32", 'expected an instruction or "}", found the end'),
        ("ENTRY e { x = f32[] constant(1) } e { y = f32[] constant(1) }", "1:35", "second computation"),
        ("ENTRY e { x = f32[] constant(1) } ENTRY f { y = f32[] constant(1) }", "1:35", "second ENTRY"),
    ],
)  # fmt: skip
def test_invalid_syntax_names_the_place_and_what_was_expected(
    text: str, place: str, problem: str
) -> None:
    with pytest.raises(HloSyntaxError, match=problem) as raised:
        parse(text)
    error = raised.value
    assert f"{error.line}:{error.column}" in place.split("|")
    line, caret = error.excerpt.splitlines()
    assert caret == " " * (error.column - 1) + "^"
    assert line == (text.splitlines() or [""])[error.line - 1]
    assert error.exit_code == 3


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["x = f32[2] parameter(0)", "x = f32[2] negate(x)"], '"x" is assigned a second time'),
        (["x = f32[2] parameter(0)", "y = f32[2] negate(z)"], 'operand "z" is not defined above'),
        (["y = f32[2] negate(x)", "x = f32[2] parameter(0)"], 'operand "x" is not defined above'),
        (["ROOT x = f32[2] parameter(0)", "ROOT y = f32[2] negate(x)"], '"y" is a second ROOT, after "x"'),
        (["x = f32[2] parameter(0)", "y = f32[2] negate(f32[3] x)"], r'operand "x" is written as f32\[3\], its definition has f32\[2\]'),
        (["x = f32[2] parameter(0)", "y = f32[2] negate(s32[2] x)"], r"written as s32\[2\]"),
        (["x = f32[2] parameter(7)"], '"x" is parameter 7, but there is no parameter 0'),
        (["x = f32[2] parameter(0)", "y = f32[2] parameter(0)"], "second parameter 0"),
        (["x = f32[2] parameter(-1)"], "expected the number of the parameter"),
        (["x = f32[2,3] parameter(0)", "y = f32[7] reshape(x)"], "the number of elements differs"),
        (["x = f32[2] parameter(0), sharding={devices=[2,1]<=[2] last_tile_dim_replicate last_tile_dims={manual}}"], "exclude each other"),
    ],
)  # fmt: skip
def test_contradictions_name_the_instruction(lines: list[str], problem: str) -> None:
    with pytest.raises(HloSyntaxError, match=problem):
        parse(entry(*lines))


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        ("(x: f32[3]) -> f32[2]", r"is f32\[3\] in the signature"),
        ("(x: f32[2], y: f32[2]) -> f32[2]", "the signature has 2 parameters"),
        ("(x: f32[2]) -> f32[3]", "the signature returns"),
    ],
)
def test_a_signature_must_agree(signature: str, problem: str) -> None:
    with pytest.raises(HloSyntaxError, match=problem):
        parse(f"f {signature} {{ x = f32[2] parameter(0) }}")


@pytest.mark.parametrize(
    "text",
    [
        entry("x = " + "(" * 5000 + ")" * 5000 + " parameter(0)"),
        entry("x = f32[] parameter(0)", "y = f32[] " + "negate(f32[] " * 5000 + "x" + ")" * 5000),
        entry("x = f32[] constant((" + "{" * 5000 + "}" * 5000 + "))"),
        entry("x = f32[] constant(1), a=" + "{" * 5000 + "}" * 5000),
        "ENTRY " + "b(" * 5000,
    ],
)
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(HloSyntaxError, match="nested|expected"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 200_000,
        "x." * 100_000,
        "ENTRY e { " + "a, " * 60_000,
        "ENTRY e { x = f32[] add(" + "a, " * 60_000,
        "ENTRY e { x = f32[] add(" + "a" * 200_000,
        "/*" * 100_000,
        "/" * 200_000,
        '"' * 200_001,
        "ENTRY e { x = f32[" + "1," * 100_000,
        "ENTRY e { x = f32[] constant(1), a={" + '"' * 100_001,
        " \n#" * 100_000,
    ],
)
def test_long_runs_of_one_word_take_linear_time(text: str) -> None:
    start = time.process_time()
    with pytest.raises(HloSyntaxError):
        parse(text)
    assert (
        time.process_time() - start < 5.0
    )  # a quadratic scan takes minutes; linear time is some 20 ms


def test_damaged_texts_are_read_or_refused() -> None:
    texts = [programs()[f"small/{name}"].text for name in ("scan", "cond", "sort", "conv_grad")] + [
        SMALL
    ]
    counts = read_damaged(texts, 1500, seed=7, imports=True)
    assert counts["read"] > 50
    assert counts["refused"] > 500
    assert counts["imported"] > 20


PLAIN = """HloModule m
add (a: f32[], b: f32[]) -> f32[] { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e (x: f32[3,2]) -> f32[3] { x = f32[3,2]{1,0} parameter(0) z = f32[] constant(0)
 ROOT r = f32[3]{0} reduce(f32[3,2]{1,0} x, z), dimensions={1}, to_apply=add }
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("HloModule m", "HloModule m:"),
        ("(a: f32[], b: f32[])", "(a f32[], b f32[])"),
        ("(x: f32[3,2])", "(x f32 [3,2])"),
        ("-> f32[3] {", "-> f32 [3] {"),
        ("x = f32[3,2]{1,0}", "x = f32 [3,2] {1,0}"),
        ("x = f32[3,2]{1,0}", "x =\n  f32[3,2]\n  {1,0}"),
        ("x = f32[3,2]{1,0}", "x = f32[3,2]/*here*/{1,0}"),
        ("x = f32[3,2]{1,0}", "x = f32[3,2]{ 1,\t0\n}"),
        ("x = f32[3,2]{1,0}", "x = f32[3,/*here*/\n2]{/*order*/1,0}"),
        ("(x: f32[3,2])", "(x: f32[\t3,\n2])"),
        ("parameter(0)", "parameter(/*first*/0)"),
        ("reduce(f32[3,2]{1,0} x", "reduce(f32 [3,2] {1,0} x"),
        ("dimensions={1}", "dimensions= {1}"),
        ("dimensions={1}", "dimensions=\n  {1}"),
        ("to_apply=add", "to_apply= add"),
        ("to_apply=add", "to_apply=\n  %add"),
        ("r = f32[3]{0} reduce", "r =\n f32[3]{0} reduce"),
    ],
)
def test_blanks_and_colons_may_be_elsewhere(old: str, new: str) -> None:
    assert old in PLAIN
    expected, module = parse(PLAIN), parse(PLAIN.replace(old, new, 1))
    assert [list(map(str, c.instructions)) for c in module.computations] == [
        list(map(str, c.instructions)) for c in expected.computations
    ] or "%add" in new
    assert parse(to_text(module)) == module


@pytest.mark.parametrize(
    "value", ["s32[] 1", "f32[2] {1, 2}", "s32[]  1", "(s32[] 1, f32[] 2)", "pred[] true"]
)
def test_a_literal_may_be_an_attribute(value: str) -> None:
    text = f'ENTRY e {{\n  p = s32[] parameter(0)\n  ROOT c = s32[] custom-call(p), custom_call_target="f", literal={value}, x=1\n}}\n'
    module = parse(text)
    attributes = module.entry.root.attributes
    assert plain(attributes["literal"]) == plain(value)
    assert attributes["x"] == "1"
    assert parse(to_text(module)) == module


def test_comments_behind_blanks_and_instructions() -> None:
    text = """  # first
HloModule m  # the module
  # the entry
ENTRY e {  # begins
  a = f32[2]{0} parameter(0)  # an input
    # between
  ROOT b = f32[2]{0} add(a, # left
    a), metadata={op_name="x#y"}, note=#sdy  # the end
}  # last
# all"""
    module = parse(text)
    root = module.entry.root
    assert root.attributes == {"metadata": '{op_name="x#y"}', "note": "#sdy"}
    assert [operand.name for operand in root.operands] == ["a", "a"]
