"""shard_map: the program of all devices of a mesh, in HLO and in StableHLO."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gehost_hlo import UntranslatableError, import_file, parse
from gehost_hlo.attributes import AttributeFormError, replica_groups

from .recorded import imported, run

X = np.arange(32, dtype=np.float32).reshape(8, 4) / 7


def stablehlo(body: str, local: str, result: str, out: str, into: str = '{"x"}, {}') -> str:
    return f"""module @jit_f attributes {{mhlo.num_partitions = 8 : i32}} {{
  sdy.mesh @mesh = <["x"=4, "y"=2]>
  func.func public @main(%arg0: tensor<8x4xf32>) -> {result} {{
    %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{into}]>] out_shardings=[<@mesh, [{out}]>] manual_axes={{"x", "y"}} (%arg1: {local}) {{
      {body}
    }} : (tensor<8x4xf32>) -> {result}
    return %0 : {result}
  }}
}}"""


def result(tmp_path: Path, text: str) -> np.ndarray:
    path = tmp_path / "text.mlir"
    path.write_text(text)
    return run(import_file(path), [X])[0]


SUM = """%1 = "stablehlo.all_reduce"(%arg1) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = {groups}, use_global_device_ids}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }}) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      sdy.return %1 : tensor<2x4xf32>"""


@pytest.mark.parametrize(
    "groups",
    [
        "dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>",
        '#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>',
    ],
)
def test_a_sum_over_one_axis(tmp_path: Path, groups: str) -> None:
    text = stablehlo(SUM.format(groups=groups), "tensor<2x4xf32>", "tensor<2x4xf32>", "{}, {}")
    np.testing.assert_allclose(result(tmp_path, text), X.reshape(4, 2, 4).sum(0), rtol=1e-6)


def test_devices_differ_by_their_number(tmp_path: Path) -> None:
    body = """%1 = stablehlo.partition_id : tensor<ui32>
      %2 = stablehlo.convert %1 : (tensor<ui32>) -> tensor<f32>
      %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<2x2xf32>
      %4 = stablehlo.add %arg1, %3 : tensor<2x2xf32>
      sdy.return %4 : tensor<2x2xf32>"""
    text = stablehlo(body, "tensor<2x2xf32>", "tensor<8x4xf32>", '{"x"}, {"y"}', '{"x"}, {"y"}')
    number = np.repeat(np.repeat(np.arange(8).reshape(4, 2), 2, 0), 2, 1)
    np.testing.assert_allclose(result(tmp_path, text), X + number, rtol=1e-6)


def test_a_collective_in_a_loop(tmp_path: Path) -> None:
    body = """%c = stablehlo.constant dense<0> : tensor<i32>
      %1:2 = stablehlo.while(%i = %c, %x = %arg1) : tensor<i32>, tensor<2x4xf32>
      cond {
        %n = stablehlo.constant dense<3> : tensor<i32>
        %2 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %2 : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %2 = stablehlo.add %i, %one : tensor<i32>
        %3 = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 2], [2, 4], [4, 6], [6, 0], [1, 3], [3, 5], [5, 7], [7, 1]]> : tensor<8x2xi64>}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
        stablehlo.return %2, %3 : tensor<i32>, tensor<2x4xf32>
      }
      sdy.return %1#1 : tensor<2x4xf32>"""
    text = stablehlo(body, "tensor<2x4xf32>", "tensor<8x4xf32>", '{"x"}, {}')
    np.testing.assert_array_equal(result(tmp_path, text), np.roll(X, 6, axis=0))


HLO = """HloModule m, frontend_attributes={{xla.sdy.meshes={{mesh = #sdy.mesh<["x"=4]{order}>}}}}
body {{ p = f32[2,4] parameter(0) ROOT g = f32[8,4] all-gather(p), dimensions={{0}}, replica_groups=[1,4]<=[4] }}
ENTRY e {{ x = f32[8,4] parameter(0)
  l = f32[2,4] custom-call(x), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={{xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{{\\"x\\"}}, {{}}]>]>",xla.sdy.manual_axes="#sdy<manual_axes{{\\"x\\"}}>"}}
  c = f32[8,4] call(l), to_apply=body
  ROOT r = f32[8,4] custom-call(c), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={{xla.sdy.manual_axes="#sdy<manual_axes{{\\"x\\"}}>",xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{{}}, {{}}]>]>"}} }}"""


def test_hlo_text() -> None:
    np.testing.assert_array_equal(run(imported(HLO.format(order="")), [X])[0], X)


def test_an_own_order_of_devices_is_refused() -> None:
    with pytest.raises(UntranslatableError, match="an own order of devices"):
        imported(HLO.format(order=", device_ids=[1,0,3,2]"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{0,2},{1,3}}", [[0, 2], [1, 3]]),
        ("{}", [[0, 1, 2, 3]]),
        ("[2,2]<=[4]", [[0, 1], [2, 3]]),
        ("[2,2]<=[2,2]T(1,0)", [[0, 2], [1, 3]]),
        ("mesh['x'=2,'y'=2] {'x'}", [[0, 2], [1, 3]]),
        ("mesh['x'=2,'y'=2] {'y','x'}", [[0, 2, 1, 3]]),
        ("{{0,9}}", None),
        ("[3,2]<=[4]", None),
        ("mesh['x'=4] {'z'}", None),
        ("nonsense", None),
    ],
)
def test_replica_groups(text: str, expected: list[list[int]] | None) -> None:
    module = parse(
        f"ENTRY e {{ x = f32[2] parameter(0) ROOT r = f32[2] all-to-all(x), replica_groups={text}, dimensions={{0}} }}"
    )
    if expected is None:
        with pytest.raises(AttributeFormError):
            replica_groups(module.entry.root, 4)
    else:
        assert replica_groups(module.entry.root, 4) == expected


GSPMD = """module @jit_f attributes {{mhlo.num_partitions = 8 : i32}} {{
  func.func public @main(%arg0: tensor<8x4xf32>) -> tensor<8x4xf32> {{
    %0 = stablehlo.custom_call @Sharding(%arg0) {{mhlo.sharding = "{into}"}} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {{mhlo.sharding = "{{manual}}"}} : (tensor<8x4xf32>) -> tensor<{local}xf32>
    %2 = stablehlo.partition_id : tensor<ui32>
    %3 = stablehlo.convert %2 : (tensor<ui32>) -> tensor<f32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<{local}xf32>
    %5 = stablehlo.add %1, %4 : tensor<{local}xf32>
    %6 = stablehlo.custom_call @Sharding(%5) {{mhlo.sharding = "{{manual}}"}} : (tensor<{local}xf32>) -> tensor<{local}xf32>
    %7 = stablehlo.custom_call @SPMDShardToFullShape(%6) {{mhlo.sharding = "{out}"}} : (tensor<{local}xf32>) -> tensor<8x4xf32>
    return %7 : tensor<8x4xf32>
  }}
}}"""


@pytest.mark.parametrize(
    ("tiles", "local", "devices"),
    [
        ("{devices=[8,1]<=[8]}", (1, 4), np.arange(8).reshape(8, 1)),
        ("{devices=[8,1]7,6,5,4,3,2,1,0}", (1, 4), np.arange(8)[::-1].reshape(8, 1)),
        ("{devices=[4,2]<=[8]}", (2, 2), np.arange(8).reshape(4, 2)),
        ("{devices=[2,4]<=[4,2]T(1,0)}", (4, 1), np.arange(8).reshape(4, 2).T),
    ],
)
def test_regions_of_gspmd(
    tmp_path: Path, tiles: str, local: tuple[int, int], devices: np.ndarray
) -> None:
    text = GSPMD.format(into=tiles, out=tiles, local="x".join(map(str, local)))
    expected = X + np.kron(devices, np.ones(local)).astype(np.float32)
    np.testing.assert_array_equal(result(tmp_path, text), expected)


def test_a_whole_operand_of_gspmd(tmp_path: Path) -> None:
    """Device 0 has the first copy of each part."""
    out = "{devices=[1,1,8]<=[8] last_tile_dim_replicate}"
    text = GSPMD.format(into="{replicated}", out=out, local="8x4")
    np.testing.assert_array_equal(result(tmp_path, text), X)


@pytest.mark.parametrize(
    ("into", "out", "reason"),
    [
        ("{replicated}", "{replicated}", "do not say how many devices"),
        ("{devices=[4,1,2]<=[8] last_tile_dims={manual}}", "{replicated}", "parts or copies"),
        ("{devices=[4,1]0,1,2,2}", "{replicated}", "does not name each device once"),
        ("{devices=[128,1]<=[128]}", "{replicated}", "64 at most"),
    ],
)
def test_regions_of_gspmd_that_are_refused(
    tmp_path: Path, into: str, out: str, reason: str
) -> None:
    with pytest.raises(UntranslatableError, match=reason):
        result(tmp_path, GSPMD.format(into=into, out=out, local="2x4"))
