"""Hardware files and sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gehost import UsageError
from gehost_sharding.hardware import Hardware, parse_bytes
from gehost_sharding.mesh import Mesh
from gehost_sharding.redistribution import Redistributions


def test_a_file_sets_what_it_names(tmp_path: Path) -> None:
    path = tmp_path / "h.toml"
    path.write_text('flops = 1e12\nmemory = "2GiB"\n[link_bandwidth]\ndefault = 1e9\nmodel = 5e9\n')
    hardware = Hardware.load(str(path))
    assert (hardware.flops, hardware.memory, hardware.link_bandwidth) == (1e12, 2 << 30, 1e9)
    assert hardware.memory_bandwidth == 2e12
    assert (hardware.bandwidth("model"), hardware.bandwidth("data")) == (5e9, 1e9)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("flop = 1", 'unknown key "flop"; nearest: flops'),
        ("flops = 0", "flops = 0: wanted a number above 0"),
        ('flops = "fast"', "flops = 'fast': wanted a number"),
        ("[link_bandwidth]\nmodel = -1", "model = -1: wanted a number above 0"),
        ("flops =", "cannot read the hardware file"),
    ],
)
def test_bad_files_are_refused(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "h.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason):
        Hardware.load(str(path))


def test_a_path_costs_latency_and_bytes() -> None:
    mesh = Mesh(("a", "b"), (2, 4))
    hardware = Hardware(link_bandwidth=100.0, latency=3.0, axis_bandwidth={"b": 50.0})
    path = Redistributions(mesh).path((8, 8), (0, 0), (-1, -1))  # b, then a
    fixed, per_byte = hardware.path_seconds(mesh, path)
    assert fixed == 6.0
    assert per_byte == pytest.approx(3 / 8 / 50 + 1 / 2 / 100)


@pytest.mark.parametrize(
    ("text", "size"), [("16GiB", 16 << 30), ("1.5 KiB", 1536), ("7", 7), ("2MB", 2_000_000)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size
