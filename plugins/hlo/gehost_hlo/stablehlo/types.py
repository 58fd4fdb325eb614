"""Types and constants of StableHLO as HLO's shapes and literals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from gehost_hlo.literals import NUMPY, Array
from gehost_hlo.module import Shape
from gehost_hlo.reader import TYPES

_TENSOR = re.compile(r"tensor<((?:(?:[0-9]+|\?)x)*)([^,]+?)(?:,\s*(.*))?>", re.DOTALL)
_BOUNDS = re.compile(
    r"#(?:stablehlo|mhlo)\.(?:bounds|type_extensions)<(?:bounds = \[)?([^>\]]*)\]?>"
)
_COMPLEX = {"complex<f32>": "c64", "complex<f64>": "c128"}
_INTEGER = re.compile(r"(si|ui|i)([0-9]+)")
_HEX = re.compile(r"(-?)0x([0-9A-Fa-f]+)")
_BITS = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}


class TypeTextError(ValueError):
    """A type or a constant is none that HLO has."""


def shape_of(text: str) -> Shape:
    """The shape of ``tensor<2x3xf32>``, ``tuple<…>`` or ``!stablehlo.token``.

    Raises:
        TypeTextError: HLO has no such type.
    """
    if text == "!stablehlo.token":
        return Shape("token")
    if text.startswith("tuple<"):
        return Shape("tuple", elements=tuple(map(shape_of, _split(text[6:-1]))))
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise TypeTextError(f"{text} is no type of HLO")
    kind = _element(match[2])
    sizes = [-1 if size == "?" else int(size) for size in match[1].split("x")[:-1]]
    bounds = _BOUNDS.fullmatch(match[3]) if match[3] else None
    dynamic: list[int] = []
    if bounds is not None:
        for axis, bound in enumerate(bounds[1].split(",")):
            if bound.strip() != "?" and axis < len(sizes):
                sizes[axis] = int(bound)
                dynamic.append(axis)
    return Shape(kind, tuple(sizes), dynamic=tuple(dynamic))


def _element(text: str) -> str:
    if text in _COMPLEX:
        return _COMPLEX[text]
    integer = _INTEGER.fullmatch(text)
    if text == "i1":
        return "pred"
    kind = f"{'u' if integer[1] == 'ui' else 's'}{integer[2]}" if integer else text.lower()
    if kind not in TYPES:
        raise TypeTextError(f"{text} is no element type of HLO")
    return kind


def _split(text: str) -> list[str]:
    """The parts of a list between commas outside of brackets."""
    parts: list[str] = []
    depth, start = 0, 0
    for position, letter in enumerate(text):
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and not depth:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()] if text.strip() else []


def elements_of(text: str, resources: Mapping[str, bytes]) -> tuple[Shape, list[str] | None]:
    """The shape and the numbers, as HLO writes them, of ``dense<…> : type``.

    One number stands for all elements; None for those that the text leaves out.

    Raises:
        TypeTextError: it is no constant.
    """
    value, _, kind = text.rpartition(" : ")
    shape = shape_of(kind.strip())
    value = value.strip()
    if value.startswith("dense_resource<"):
        data = resources.get(value[len("dense_resource<") : -1].strip('"'))
        return shape, None if data is None else _words(_unpacked(data[4:], shape), shape)
    if not (value.startswith("dense<") and value.endswith(">")):
        raise TypeTextError(f"expected dense<…>, found {value[:40]}")
    inside = value[len("dense<") : -1].strip()
    if inside == "__elided__":
        return shape, None
    if inside.startswith('"'):
        try:
            data = bytes.fromhex(inside.strip('"').removeprefix("0x"))
        except ValueError as error:
            raise TypeTextError("the string of a constant has hexadecimal digits") from error
        return shape, _words(_unpacked(data, shape), shape)
    if shape.type in {"c64", "c128"}:
        words = ["".join(part.split()) for part in re.findall(r"\([^)]*\)", inside)]
    else:
        words = re.sub(r"[\[\],]", " ", inside).split()
    if "0x" in inside:
        words = [_from_bits(word, shape) for word in words]
    if len(words) == 1 and shape.type.startswith(("f", "bf")):
        words = [_short(words[0])]
    if len(words) not in {1, shape.size}:
        raise TypeTextError(f"{len(words)} numbers do not fill {kind.strip()}")
    return shape, words if shape.size else []


def _short(word: str) -> str:
    """``0.000000e+00`` as HLO writes it: comparators are known by their constants."""
    text = repr(float(word))
    return text.removesuffix(".0")


def _from_bits(word: str, shape: Shape) -> str:
    """``0x7F800000`` is the bits of a float, or an integer."""
    match = _HEX.fullmatch(word)
    if match is None:
        return word
    number = int(match[2], 16)
    if shape.type in _BITS:
        array = np.array([number], _BITS[shape.type]).view(NUMPY[shape.type])
        return _words(array, shape)[0]
    return str(-number if match[1] else number)


def _unpacked(data: bytes, shape: Shape) -> Array:
    """The numbers of raw bytes; those of pred are bits or bytes."""
    if shape.type in {"c64", "c128"}:
        dtype: Any = np.complex64 if shape.type == "c64" else np.complex128
    elif shape.type in NUMPY:
        dtype = NUMPY[shape.type]
    else:
        raise TypeTextError(f"{shape.type} has no numbers")
    if shape.type == "pred" and len(data) not in {1, shape.size}:
        return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[: shape.size].astype(
            bool
        )
    if shape.type == "pred":
        return np.frombuffer(data, np.uint8) != 0
    if not data or len(data) % np.dtype(dtype).itemsize:
        raise TypeTextError(f"{len(data)} bytes do not fill {shape}")
    array = np.frombuffer(data, dtype)
    if array.size not in {1, shape.size}:
        raise TypeTextError(f"{array.size} numbers do not fill {shape}")
    return array


def _words(array: Array, shape: Shape) -> list[str]:
    if shape.type == "pred":
        return ["true" if item else "false" for item in array.reshape(-1)]
    if shape.type in {"c64", "c128"}:
        return [f"({item.real!r}, {item.imag!r})" for item in array.reshape(-1).tolist()]
    if shape.type.startswith(("s", "u")):
        return [str(int(item)) for item in array.reshape(-1)]
    return [str(item) for item in array.reshape(-1)]


def literal_text(words: list[str], dimensions: tuple[int, ...]) -> str:
    """The numbers in nested braces, as HLO writes them."""
    if not dimensions:
        return words[0]
    for size in reversed(dimensions):
        if not size:
            return "{}"
        words = [f"{{{', '.join(words[k : k + size])}}}" for k in range(0, len(words), size)]
    return words[0]
