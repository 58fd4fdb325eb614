"""Operations with regions, named ones, fills and concatenations in the fusion of a text."""

from __future__ import annotations

import pytest

from gehost_linalg.driver import MLIR_COMPANIONS, fuse_block
from gehost_linalg.generic import Generic
from gehost_linalg.mlir import Function, parse, print_function

from .oracle import Iree, signatures

I1, T = "affine_map<(d0) -> (d0)>", "tensor<4xf32>"


def along(result: str, op: str, *ins: str, out: str = "e") -> str:
    """A Generic along one loop of 4."""
    names = [f"%{result}_{place}" for place in range(len(ins))]
    arguments = ", ".join([f"{name}: f32" for name in [*names, f"%{result}_o"]])
    maps = ", ".join([I1] * (len(ins) + 1))
    listing = f"{', '.join(f'%{item}' for item in ins)} : {', '.join([T] * len(ins))}"
    return f"""%{result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}} ins({listing}) outs(%{out} : {T}) {{
    ^bb0({arguments}):
      %{result}_r = {op} {", ".join(names)} : f32
      linalg.yield %{result}_r : f32
    }} -> {T}
    """


def text_of(body: str, *results: tuple[str, str]) -> str:
    names = ", ".join(f"%{name}" for name, _ in results)
    types = ", ".join(kind for _, kind in results)
    return f"""func.func @f(%a: {T}, %b: {T}, %s: f32, %i: index, %go: i1) -> ({types}) {{
    %e = tensor.empty() : {T}
    {body}
    return {names} : {types}
    }}"""


def fused(text: str, control: str = "one-use", multi_use: str = "refuse") -> Function:
    (read,) = parse(text)
    block = fuse_block(
        read.ops, control, multi_use, outputs=read.outputs, companions=MLIR_COMPANIONS
    )
    result = Function(read.name, read.arguments, block.ops, block.outputs)
    printed = print_function(result)
    assert print_function(parse(printed)[0]) == printed
    return result


def payloads(function: Function) -> list[list[str]]:
    generics = [op for op in function.ops if isinstance(op, Generic) and op.named is None]
    return [[item.name.partition(".")[2] for item in op.payload.ops] for op in generics]


LOOP = f"""%l = scf.for %k = %i to %i step %i iter_args(%v = %a) -> ({T}) {{
    {along("n", "math.exp", "v")} scf.yield %n : {T}
    }}
    """
CONDITION = f"""%l = scf.if %go -> ({T}) {{
    {along("n", "math.exp", "a")} scf.yield %n : {T}
    }} else {{
    scf.yield %a : {T}
    }}
    """
WHILE = f"""%l = scf.while (%v = %a) : ({T}) -> {T} {{
    scf.condition(%go) %v : {T}
    }} do {{
    ^bb0(%w: {T}):
    {along("n", "math.exp", "w")} scf.yield %n : {T}
    }}
    """
CALL = f"""%l = scf.if %go -> ({T}) {{
    "my.print"(%a) : ({T}) -> ()
    scf.yield %a : {T}
    }} else {{
    scf.yield %a : {T}
    }}
    """
EXPANDED = f"""%f = linalg.fill ins(%s : f32) outs(%e : {T}) -> {T}
    %r = tensor.expand_shape %f [[0, 1]] output_shape [1, 4] : {T} into tensor<1x4xf32>
    """


@pytest.mark.parametrize("region", [LOOP, CONDITION, WHILE])
def test_a_region_whose_results_are_not_read_goes(region: str) -> None:
    assert fused(text_of(region, ("a", T))).ops == []
    assert payloads(fused(text_of(region, ("l", T)))) == [["exp"]]


def test_a_region_with_other_effects_stays() -> None:
    assert '"my.print"(%a)' in print_function(fused(text_of(CALL, ("a", T))))


def test_what_a_dead_region_alone_reads_goes() -> None:
    """The producer of the sum has one use then."""
    region = LOOP.replace("%v = %a", "%v = %p")
    body = along("p", "math.exp", "a") + region + along("q", "math.tanh", "p")
    assert payloads(fused(text_of(body, ("q", T)))) == [["exp", "tanh"]]


def test_a_transposition_that_changes_nothing_goes() -> None:
    body = f"%t = linalg.transpose ins(%a : {T}) outs(%e : {T}) permutation = [0]"
    result = fused(text_of(body, ("t", T)))
    assert (result.ops, [value.name for value in result.outputs]) == ([], ["a"])


def test_a_fill_is_reshaped_where_the_reshape_alone_reads_it() -> None:
    """As in MLIR, which leaves the merge of one."""
    alone = print_function(fused(text_of(EXPANDED, ("r", "tensor<1x4xf32>"))))
    assert "expand_shape" not in alone
    both = print_function(fused(text_of(EXPANDED, ("r", "tensor<1x4xf32>"), ("f", T))))
    assert "tensor.expand_shape %f" in both


CONCAT = f"%c = tensor.concat dim(0) %h, %h : (tensor<2xf32>, tensor<2xf32>) -> {T}\n    "
HALF = "%h = tensor.empty() : tensor<2xf32>\n    "


@pytest.mark.parametrize(
    ("body", "generics"),
    [
        (along("z", "math.exp", "c"), 2),
        (along("z", "arith.addf", "c", "c"), 2),
        (along("z", "arith.addf", "c", "a"), 1),
        (along("z", "math.exp", "c") + along("y", "math.exp", "c"), 2),
        (along("z", "math.exp", "c").replace("math.exp %z_0", "arith.addf %z_0, %z_o"), 2),
        (
            f"""%z, %y = linalg.generic {{indexing_maps = [{I1}, {I1}, {I1}], iterator_types = ["parallel"]}} ins(%c : {T}) outs(%e, %e : {T}, {T}) {{
            ^bb0(%l: f32, %m: f32, %n: f32):
              %p = math.exp %l : f32
              %q = math.tanh %p : f32
              linalg.yield %p, %q : f32, f32
            }} -> ({T}, {T})
            """,
            2,
        ),
    ],
    ids=["one", "twice", "another operand", "another reader", "its out", "two results"],
)
def test_concatenations_are_split_where_mlir_splits_them(body: str, generics: int) -> None:
    results = [("z", T), ("y", T)] if "%y" in body else [("z", T)]
    text = text_of(HALF + CONCAT + body, *results)
    result = fused(text)
    assert len(payloads(result)) == generics
    pytest.importorskip("iree.compiler")
    assert signatures(result) == signatures(Iree().fused_functions(text)[0])


@pytest.mark.parametrize(
    ("joined", "other", "generics"),
    [("d0", "0", 2), ("d0", "0, 0", 1), ("0, d0", "0", 1), ("d0, 0", "0", 1)],
)
def test_a_concatenation_is_split_where_no_map_has_more_axes_than_loops(
    joined: str, other: str, generics: int
) -> None:
    """As in MLIR; an axis without a loop is read at 0."""

    def tensor(axes: str, size: int) -> str:
        return f"tensor<{axes.replace('d0', str(size)).replace(', ', 'x').replace('0', '2')}xf32>"

    part, whole, side = tensor(joined, 2), tensor(joined, 4), tensor(other, 4)
    axis = joined.split(", ").index("d0")
    text = f"""func.func @f(%a: {part}, %b: {side}) -> {T} {{
      %c = tensor.concat dim({axis}) %a, %a : ({part}, {part}) -> {whole}
      %e = tensor.empty() : {T}
      %z = linalg.generic {{indexing_maps = [affine_map<(d0) -> ({joined})>,
          affine_map<(d0) -> ({other})>, {I1}], iterator_types = ["parallel"]}}
          ins(%c, %b : {whole}, {side}) outs(%e : {T}) {{
        ^bb0(%l: f32, %m: f32, %o: f32):
          %p = arith.addf %l, %m : f32
          linalg.yield %p : f32
        }} -> {T}
      return %z : {T}
    }}"""
    result = fused(text)
    assert len(payloads(result)) == generics
    pytest.importorskip("iree.compiler")
    assert signatures(result) == signatures(Iree().fused_functions(text)[0])


@pytest.mark.parametrize("region", [LOOP, CONDITION, WHILE])
def test_a_reader_in_a_region_does_not_share(region: str) -> None:
    """Its results would have to be computed behind the region."""
    inside = region.replace("ins(%v :", "ins(%p :").replace("ins(%w :", "ins(%p :")
    inside = inside.replace("ins(%a :", "ins(%p :")
    text = text_of(
        along("p", "math.exp", "a") + inside + along("c", "math.erf", "p"), ("l", T), ("c", T)
    )
    result = fused(text, "always", "share")
    assert payloads(result) == [["exp"], ["exp"], ["erf"]]
    near = text_of(along("p", "math.exp", "a") + along("c", "math.erf", "p"), ("p", T), ("c", T))
    assert payloads(fused(near, "always", "share")) == [["exp", "erf"]]
