"""The table of kernels, and what a compile's target makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import onnx.parser
import pytest

from gehost import Host, HostOptions, UsageError, VendorError, kernels
from gehost.cli import run
from gehost.ir.types import DataType
from gehost.kernels import Target, Use, find, release, release_note, runtimes

RUNTIME = "onnxruntime"
SKIP = "com.microsoft::SkipLayerNormalization"
ATTENTION = "com.microsoft::MultiHeadAttention"
GROUPED = "com.microsoft::GroupQueryAttention"


def host(**options: object) -> Host:
    return Host(
        HostOptions(
            vendors=["gehost:onnxruntime"], plugins=False, enable=["OrtSkipNormPass"], **options
        )  # pyright: ignore[reportArgumentType]
    )


def residual(dtype: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g ({dtype}[B, S, 4] a, {dtype}[B, S, 4] b) => ({dtype}[B, S, 4] y)
        <{dtype}[4] scale = {{1, 1, 1, 1}}>
        {{ s = Add (a, b) y = LayerNormalization (s, scale) }}"""
    )


@pytest.mark.parametrize(
    ("operator", "dtype", "provider", "version", "there"),
    [
        (ATTENTION, DataType.FLOAT16, "cpu", "", True),
        (ATTENTION, DataType.BFLOAT16, "cpu", "", False),
        (ATTENTION, DataType.BFLOAT16, "cuda", "", True),
        (ATTENTION, DataType.FLOAT, "cpu", "1.21.0", False),
        (ATTENTION, DataType.FLOAT, "cpu", "1.21.1", True),
        (GROUPED, DataType.FLOAT, "cuda", "", False),
        (SKIP, DataType.BFLOAT16, "cpu", "1.29.0", False),
        (SKIP, DataType.BFLOAT16, "cpu", "1.30.0", True),
        (SKIP, DataType.BFLOAT16, "cpu", "9.0", True),
        (SKIP, DataType.INT32, "cpu", "", False),
        (SKIP, None, "cpu", "", False),
        ("com.microsoft::GroupNorm", DataType.FLOAT, "cpu", "", False),
        ("acme::Op", DataType.FLOAT, "cpu", "", False),
    ],
)
def test_a_kernel_by_type_provider_and_release(
    operator: str, dtype: DataType | None, provider: str, version: str, *, there: bool
) -> None:
    kernel = find(operator, dtype, runtime=RUNTIME, provider=provider, version=version)
    assert (kernel is not None) == there


def test_bfloat16_loads_from_the_release_whose_operator_declares_it() -> None:
    """Releases before 1.24.1 refuse a file with Attention in bfloat16, with or without a GPU."""
    rows = [
        find(ATTENTION, DataType.BFLOAT16, runtime=RUNTIME, provider="cuda", version=version)
        for version in ("1.21.1", "1.23.2", "1.24.1")
    ]
    assert [row and row.since for row in rows] == [None, None, "1.24.1"]


def test_a_row_has_types_precision_and_limits() -> None:
    kernel = find(ATTENTION, DataType.FLOAT16, runtime=RUNTIME, provider="cpu")
    assert kernel is not None
    assert (kernel.types["float16"], kernel.inside) == ("casts", "float32")
    grouped = find(GROUPED, DataType.FLOAT16, runtime=RUNTIME, provider="cuda")
    assert grouped is not None
    assert grouped.limits["head_size_multiple"] == 8


def test_rows_differ_and_name_known_types() -> None:
    rows = kernels.kernels()
    keys = {(row.operator, row.runtime, row.provider, row.since) for row in rows}
    assert len(keys) == len(rows)
    for row in rows:
        assert set(row.types) <= {"float32", "float16", "bfloat16", "float64"}
        assert set(row.types.values()) <= {"own", "casts", "parts"}
        assert row.source in ("measured", "read")
        assert release(row.since) >= (1, 21, 1)


def test_targets() -> None:
    assert Target.of("") == Target()
    assert Target.of("cuda:1.24") == Target("cuda", "1.24")
    assert str(Target()) == "cpu"
    assert str(Target.of("cuda:1.24")) == "cuda:1.24"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("cud", 'target "cud": no table of kernels has this provider; did you mean cuda'),
        ("metal", 'target "metal": .*; there are cpu, cuda'),
        ("cuda 1.24", 'target "cuda 1.24": wanted PROVIDER or PROVIDER:VERSION'),
    ],
)
def test_other_targets_are_refused(text: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        host(target=text)


def test_a_release_that_the_table_lacks_has_the_nearest_older_kernels() -> None:
    assert not release_note(Target.of("cpu:1.24"))
    _, report = host(target="cpu:99.0").run(residual("float"))
    assert report.needs == ["onnxruntime>=1.21.1"]
    assert [note for note in report.notes if "table of kernels ends at onnxruntime" in note]


@pytest.mark.parametrize("text", ["cpu:1.10", "cuda:1.21.0", "cpu:0"])
def test_a_release_before_the_table_has_no_kernels_and_a_note(text: str) -> None:
    result, report = host(target=text).run(residual("float"))
    assert "SkipLayerNormalization" not in {node.op_type for node in result.graph.node}
    (note,) = [note for note in report.notes if "table of kernels" in note]
    begins = "the table of kernels begins at onnxruntime 1.21.1, so that no kernel of it is used"
    assert note == f"target {text}: {begins}"
    assert not release_note(Target.of("cpu:1.21"))


def test_no_target_is_the_cpu_but_for_types_that_it_does_not_multiply() -> None:
    default = Target()
    for dtype, provider in ((DataType.FLOAT16, "cpu"), (DataType.BFLOAT16, "cuda")):
        kernel = default.kernel(ATTENTION, dtype, RUNTIME)
        assert kernel is not None
        assert kernel.provider == provider
    assert default.kernel("com.microsoft::GroupNorm", DataType.FLOAT16, RUNTIME) is None
    reason = Target.of("cpu").why_not(ATTENTION, DataType.BFLOAT16, RUNTIME)
    assert reason == (
        "kernel: onnxruntime has none of com.microsoft::MultiHeadAttention for bfloat16 on cpu; "
        "--target cuda has one"
    )


def test_the_runtimes_that_operators_need() -> None:
    attention = Use(ATTENTION, DataType.FLOAT, "onnxruntime>=1.21.1", may_be_empty=False)
    uses = [
        attention,
        Use(SKIP, DataType.BFLOAT16, "onnxruntime>=1.21.1", may_be_empty=True),
        Use("acme::Op", None, "acmert", may_be_empty=True),
    ]
    assert runtimes([attention], Target()) == ["onnxruntime>=1.21.1"]
    assert runtimes([replace(attention, may_be_empty=True)], Target()) == ["onnxruntime>=1.29.0"]
    assert runtimes(uses, Target.of("cpu")) == ["onnxruntime>=1.30.0", "acmert"]
    half = replace(uses[1], dtype=DataType.FLOAT16)
    assert runtimes([half], Target.of("cuda")) == ["onnxruntime>=1.31.1"]  # float32 inside
    assert runtimes([half], Target.of("cuda:1.24")) == ["onnxruntime>=1.21.1"]


def test_releases_whose_kernel_ends_the_process_at_empty_tensors() -> None:
    older, newer = Target.of("cpu:1.28"), Target.of("cpu:1.29")
    reason = older.why_not(ATTENTION, DataType.FLOAT, RUNTIME, empty=True)
    assert reason.startswith("empty: its input may be empty, which onnxruntime 1.29.0 and newer")
    assert not older.why_not(ATTENTION, DataType.FLOAT, RUNTIME)
    assert not newer.why_not(ATTENTION, DataType.FLOAT, RUNTIME, empty=True)


def test_releases_whose_kernel_reads_an_attribute_otherwise() -> None:
    """Before 1.24.1 a window of GroupQueryAttention has one position more."""
    window = ["kv_num_heads", "local_window_size"]
    older, newer = Target.of("cpu:1.23.2"), Target.of("cpu:1.24.1")
    reason = older.why_not(GROUPED, DataType.FLOAT, RUNTIME, attributes=window)
    assert reason == (
        "local_window_size: onnxruntime reads it so from 1.24.1 on, the target is cpu:1.23.2"
    )
    assert not older.why_not(GROUPED, DataType.FLOAT, RUNTIME, attributes=window[:1])
    for target in (newer, Target.of("cpu:1.24"), Target.of("cpu"), Target()):
        assert not target.why_not(GROUPED, DataType.FLOAT, RUNTIME, attributes=window)
    for dtype, target in ((DataType.FLOAT, Target()), (DataType.BFLOAT16, Target.of("cuda"))):
        use = Use(GROUPED, dtype, "onnxruntime>=1.21.1", may_be_empty=False)
        assert runtimes([use], target) == ["onnxruntime>=1.21.1"]
        use = replace(use, attributes=frozenset(window))
        assert runtimes([use], target) == ["onnxruntime>=1.24.1"]


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_file_and_report_name_the_runtime(
    dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(residual(dtype), tmp_path / "m.onnx")
    options = ["--vendors", "gehost:onnxruntime", "--enable", "OrtSkipNormPass"]
    result = str(tmp_path / "o.onnx")
    value = ["compile", str(tmp_path / "m.onnx"), "-o", result, "--target", "cuda", *options]
    assert run(value) == 0
    needs = f"onnxruntime>={'1.21.1' if dtype == 'float' else '1.31.1'}"
    assert f"needs {needs}, target cuda" in capsys.readouterr().out
    metadata = {entry.key: entry.value for entry in onnx.load(result).metadata_props}
    assert metadata == {"gehost.needs": needs, "gehost.target": "cuda"}


def test_a_second_compile_does_not_lower_the_release() -> None:
    first, _ = host(target="cuda").run(residual("float16"))
    for target, needs in (
        ("", "1.31.1"),
        ("cuda", "1.31.1"),
        ("cuda:1.24", "1.31.1"),  # a residual norm that was chosen for its precision
        ("cpu", "1.21.1"),
    ):
        result, report = host(target=target).run(first)
        assert report.needs == [f"onnxruntime>={needs}"]
        metadata = {entry.key: entry.value for entry in result.metadata_props}
        assert metadata == {
            "gehost.needs": f"onnxruntime>={needs}",
            "gehost.target": target or "cuda",
        }
    for key, text in (("gehost.target", "<b>"), ("gehost.needs", f"onnxruntime>={'9' * 5000}")):
        hostile = onnx.ModelProto()
        hostile.CopyFrom(first)
        next(entry for entry in hostile.metadata_props if entry.key == key).value = text
        assert host(target="cpu").run(hostile)[1].needs == ["onnxruntime>=1.21.1"]


def test_a_file_without_kernels_of_a_runtime_names_none() -> None:
    off = HostOptions(vendors=["gehost:onnxruntime"], plugins=False)
    result, report = Host(off).run(residual("float"))
    assert not report.needs
    assert not result.metadata_props


def test_operators_say_the_oldest_release_of_the_table() -> None:
    for definition in host().ops:
        if not definition.provided_by:
            continue
        runtime, _, since = definition.provided_by.partition(">=")
        rows = [
            row.since
            for row in kernels.kernels()
            if (row.operator, row.runtime) == (definition.name, runtime)
        ]
        assert since == min(rows, key=release), definition.name


def test_a_table_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "kernels.toml"
    table.write_text('[newest]\n[[kernel]]\noperator = "acme::Op"\n')
    monkeypatch.setattr("gehost.kernels.shipped_files", lambda _name: [table])
    kernels._tables.cache_clear()
    try:
        with pytest.raises(VendorError, match=r"kernels.toml: no table of kernels"):
            kernels.kernels()
    finally:
        kernels._tables.cache_clear()


def test_the_table_agrees_with_the_installed_runtime() -> None:
    runtime = pytest.importorskip("onnxruntime")
    from tools.runtime.kernels import differences, undeclared

    assert not differences(runtime.__version__)
    assert not undeclared(runtime.__version__)
