"""Reads HLO text by recursive descent.

``parse`` follows the grammar in the README from top to bottom. The most frequent parts have
one expression each: the head of an instruction, the shape of an array, a list of plain operands, a
plain value of an attribute.
"""

from __future__ import annotations

import re

from gehost_hlo.check import check_computation, check_instruction
from gehost_hlo.errors import HloSyntaxError
from gehost_hlo.module import (
    HloComputation,
    HloInstruction,
    HloModule,
    Layout,
    Literal,
    Operand,
    Parameter,
    Shape,
    Table,
)
from gehost_hlo.scanner import (
    ARRAY,
    ARRAY_TYPE,
    BLANK,
    BLANK_OF_VALUE,
    DEPTH,
    NAME,
    STRINGS,
    Scanner,
)

_HEAD = re.compile(
    rf"{BLANK}(ROOT[ \t\r\n]++)?(%?)({NAME}){BLANK}={BLANK}({ARRAY}[ "
    rf"\t\r\n]++)?([a-z][a-z0-9-]*+){BLANK}\("
)
_PLAIN_OPERANDS = re.compile(rf"{BLANK}((?:%?{NAME}(?:,{BLANK}%?{NAME})*+)?+)\)")
_OPERAND = re.compile(rf"{BLANK}({ARRAY}{BLANK})?(%?)({NAME}){BLANK}(?=[,)])")
_ANY_COMMENT = re.compile(r"/\*(?:[^*]++|\*(?!/))*+\*/|//[^\n]*+")
_SEPARATOR = re.compile(rf",{BLANK}")
_ARRAY = re.compile(ARRAY)
_PARTS_OF_ARRAY = re.compile(
    r"([a-z][a-z0-9]*+)\[([^\]]*+)\](?:\{([0-9, ]*+)(?::(.*))?\})?", re.DOTALL
)
_PLAIN_LITERAL = re.compile(r'[^()"/]*+(?=\))')
_ATTRIBUTE = re.compile(rf'{BLANK},{BLANK}({NAME})={BLANK_OF_VALUE}([^,{{}}()\[\]"\s/]*+)')
_FLAT_BRACES = re.compile(
    r'\{[^{}()\[\]"/]*+(?:"(?:[^"\\]++|\\.)*+"[^{}()\[\]"/]*+)*+\}', re.DOTALL
)
_PLAIN_PART = re.compile(r"[^,{}()\[\]\"\s]*+")
_SPACED_BRACE = re.compile(r"[ \t]*+(?=\{)")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_TYPE = re.compile(rf"[a-z][a-z0-9]*+(?={BLANK}\[)")
_SPACED_ARRAY = re.compile(rf"({ARRAY_TYPE}){BLANK}(\[[^\[\]]*+\])")
_LAYOUT = re.compile(rf"{BLANK}(?=\{{{BLANK}[0-9:])")
_OPCODE = re.compile(r"[a-z][a-z0-9-]*+")
_DIMENSION = re.compile(r"(<=)?([0-9]+)|(\?)")

NUMBER = re.compile(r"[0-9]{1,9}")
TYPES = frozenset(
    [
        "pred",
        "s1",
        "s2",
        "s4",
        "s8",
        "s16",
        "s32",
        "s64",
        "u1",
        "u2",
        "u4",
        "u8",
        "u16",
        "u32",
        "u64",
        "f16",
        "bf16",
        "f32",
        "f64",
        "c64",
        "c128",
        "token",
        "opaque",
        "f4e2m1fn",
        "f8e5m2",
        "f8e4m3",
        "f8e4m3fn",
        "f8e4m3fnuz",
        "f8e5m2fnuz",
        "f8e4m3b11fnuz",
        "f8e3m4",
        "f8e8m0fnu",
        "f6e2m3fn",
        "f6e3m2fn",
    ]
)


def parse(text: str) -> HloModule:
    """Read a module from its text.

    The text is from before or after XLA's passes, or some computations without a header.

    Raises:
        HloSyntaxError: the text breaks the grammar, a name is assigned twice or not defined above
            its use, a computation has
            two roots, an operand's type contradicts the definition, parameters are not numbered
            from 0.
    """
    reader = _Reader(text)
    try:
        return reader.module()
    except RecursionError:
        raise reader.scanner.error(
            f"shapes or operands are nested more than {DEPTH} deep"
        ) from None


class _Reader:
    def __init__(self, text: str) -> None:
        self.scanner = Scanner(text)
        self._shapes: dict[str, Shape] = {}
        self._operands: dict[str, Operand] = {}
        self._opcodes: dict[str, str] = {}

    def module(self) -> HloModule:
        scanner = self.scanner
        name, attributes = "", {}
        if scanner.take_word("HloModule"):
            name, _ = scanner.name("the module's name")
            scanner.take(":")
            attributes = self._attributes()
        tables = self._tables()
        computations: list[HloComputation] = []
        places: list[int] = []
        names: dict[str, int] = {}
        entry: int | None = None
        scanner.skip()
        while scanner.position < len(scanner.text):
            place = scanner.position
            marked = scanner.take_word("ENTRY")
            computation = self._computation()
            if computation.name in names:
                raise scanner.error(
                    f'a second computation has the name "{computation.name}"', place
                )
            if marked and entry is not None:
                raise scanner.error(f'"{computation.name}" is a second ENTRY', place)
            if marked:
                entry = len(computations)
            names[computation.name] = place
            computations.append(computation)
            places.append(place)
            scanner.skip()
        if not computations:
            raise scanner.expected("a computation")
        computations[-1 if entry is None else entry].is_entry = True
        return HloModule(
            name, tuple(computations), attributes, tables, entry_marked=entry is not None
        )

    def _tables(self) -> tuple[Table, ...]:
        scanner = self.scanner
        tables: list[Table] = []
        scanner.skip()
        while True:
            name = next(
                (
                    table
                    for table in _TABLES
                    if re.compile(rf"{table}(?=[\s/]){BLANK}[0-9]").match(
                        scanner.text, scanner.position
                    )
                ),
                None,
            )
            if name is None:
                return tuple(tables)
            scanner.position += len(name)
            entries: list[tuple[int, str]] = []
            scanner.skip()
            while (number := NUMBER.match(scanner.text, scanner.position)) is not None:
                scanner.position = number.end()
                scanner.skip()
                if scanner.peek('"'):
                    entry = scanner.pattern(STRINGS, "a string")
                elif scanner.peek("{"):
                    entry = scanner.balanced()
                else:
                    raise scanner.expected('a string or "{"')
                entries.append((int(number[0]), entry))
                scanner.skip()
            tables.append(Table(name, tuple(entries)))

    def _computation(self) -> HloComputation:
        scanner = self.scanner
        start = scanner.position
        name, percent = scanner.name("a computation: its name")
        signature: tuple[Parameter, ...] | None = None
        result: Shape | None = None
        if scanner.take("("):
            signature = self._signature()
            scanner.expect("->")
            scanner.skip()
            result = self._shape(0)
        scanner.expect("{", '"{" or a signature' if signature is None else '"{"')
        instructions: list[HloInstruction] = []
        defined: dict[str, HloInstruction] = {}
        root: HloInstruction | None = None
        while not scanner.take("}"):
            place = scanner.position
            instruction = self._instruction(defined)
            if instruction.name in defined:
                raise scanner.error(f'"{instruction.name}" is assigned a second time', place)
            if instruction.is_root:
                if root is not None:
                    raise scanner.error(
                        f'"{instruction.name}" is a second ROOT, after "{root.name}"', place
                    )
                root = instruction
            defined[instruction.name] = instruction
            problem = check_instruction(instruction, defined)
            if problem:
                raise scanner.error(f'"{instruction.name}": {problem}', place)
            instructions.append(instruction)
        if not instructions:
            raise scanner.error(f'computation "{name}" is empty', start)
        if root is None:
            instructions[-1].is_root = True
        computation = HloComputation(
            name,
            tuple(instructions),
            signature=signature,
            result=result,
            attributes=self._attributes(),
            root_marked=root is not None,
            percent=percent,
        )
        problem = check_computation(computation)
        if problem:
            raise scanner.error(f'"{name}": {problem}', start)
        return computation

    def _signature(self) -> tuple[Parameter, ...]:
        scanner = self.scanner
        parameters: list[Parameter] = []
        if scanner.take(")"):
            return ()
        while True:
            scanner.skip()
            name, percent = scanner.name("a parameter's name")
            scanner.take(":")
            scanner.skip()
            parameters.append(Parameter(name, self._shape(0), percent))
            if scanner.take(")"):
                return tuple(parameters)
            scanner.expect(",", '"," or ")"')

    def _instruction(self, defined: dict[str, HloInstruction]) -> HloInstruction:
        """Read ``[ROOT] name = [shape] opcode(operands), attributes``."""
        scanner = self.scanner
        head = _HEAD.match(scanner.text, scanner.position)
        if head is not None and (head[4] is not None or head[5] != "b"):  # "b(" starts a shape
            root, sigil, name, shape_text, opcode = head.groups()
            shape = None if shape_text is None else self._array(shape_text.rstrip(), head.start(4))
            scanner.position = head.end()
            is_root, percent = root is not None, sigil == "%"
        else:
            is_root = scanner.take_word("ROOT")
            name, percent = scanner.name('an instruction or "}"')
            scanner.expect("=")
            scanner.skip()
            shape, opcode = self._shape_and_opcode(0)
        opcode = self._opcodes.setdefault(opcode, opcode)
        operands = self._operand_list(opcode, defined, 0)
        return HloInstruction(name, shape, opcode, operands, self._attributes(), is_root, percent)

    def _shape_and_opcode(self, depth: int) -> tuple[Shape | None, str]:
        scanner = self.scanner
        shape: Shape | None = None
        if scanner.peek("(") or scanner.peek("b(") or _TYPE.match(scanner.text, scanner.position):
            shape = self._shape(depth)
        scanner.skip()
        opcode = scanner.pattern(
            _OPCODE, "an opcode" if shape is not None else "a shape or an opcode"
        )
        scanner.expect("(")
        return shape, opcode

    def _operand_list(
        self, opcode: str, defined: dict[str, HloInstruction], depth: int
    ) -> tuple[Operand, ...]:
        """Read operands up to the closing parenthesis.

        A constant and a parameter hold text.
        """
        scanner = self.scanner
        if opcode in {"constant", "parameter"}:
            literal = self._literal()
            if opcode == "parameter":
                literal = Literal(_without_comments(literal.text))
            return (Operand(literal=literal),)
        plain = _PLAIN_OPERANDS.match(scanner.text, scanner.position)
        if plain is not None:
            names = _SEPARATOR.split(plain[1]) if plain[1] else ()
            operands = tuple(
                [self._operands.get(name) or self._plain_operand(name) for name in names]
            )
            for operand in operands:
                if operand.name not in defined:
                    raise self._undefined(
                        operand.name, plain.start(1) + plain[1].find(operand.name)
                    )
            scanner.position = plain.end()
            return operands
        if scanner.take(")"):
            return ()
        entries: list[Operand] = []
        while True:
            entries.append(self._operand(defined, depth))
            if scanner.take(")"):
                return tuple(entries)
            scanner.expect(",", '"," or ")"')

    def _plain_operand(self, text: str) -> Operand:
        operand = self._operands[text] = Operand(
            text.removeprefix("%"), percent=text.startswith("%")
        )
        return operand

    def _operand(self, defined: dict[str, HloInstruction], depth: int) -> Operand:
        """Read ``[shape] name``, or an instruction written in place."""
        scanner = self.scanner
        match = _OPERAND.match(scanner.text, scanner.position)
        if match is not None:
            shape_text, percent, name = match.groups()
            shape = (
                None
                if shape_text is None
                else self._array(_without_comments(shape_text), match.start(1))
            )
            place = match.start(3)
            scanner.position = match.end()
        else:
            if depth == DEPTH:
                raise scanner.error(f"operands are nested more than {DEPTH} deep")
            scanner.skip()
            shape = None
            if (
                scanner.peek("(")
                or scanner.peek("b(")
                or _TYPE.match(scanner.text, scanner.position)
            ):
                shape = self._shape(0)
            scanner.skip()
            place = scanner.position
            name, has_percent = scanner.name("an operand")
            percent = "%" if has_percent else ""
            if not percent and scanner.take("("):
                operands = self._operand_list(name, defined, depth + 1)
                return Operand(instruction=HloInstruction("", shape, name, operands, {}))
        if name not in defined:
            raise self._undefined(name, place)
        declared = defined[name].shape
        if shape is not None and declared is not None and not shape.compatible(declared):
            raise scanner.error(
                f'operand "{name}" is written as {shape}, its definition has {declared}', place
            )
        return Operand(name, shape, percent=percent == "%")

    def _undefined(self, name: str, place: int) -> HloSyntaxError:
        return self.scanner.error(
            f'operand "{name}" is not defined above in this computation', place
        )

    def _literal(self) -> Literal:
        """Read the text up to the closing parenthesis."""
        scanner = self.scanner
        match = _PLAIN_LITERAL.match(scanner.text, scanner.position)
        if match is not None:
            scanner.position = match.end() + 1
            return Literal(match[0].strip())
        scanner.position -= 1
        return Literal(scanner.balanced()[1:-1].strip())

    def _attributes(self) -> dict[str, str]:
        """Read ``, name=value`` as often as it comes."""
        scanner = self.scanner
        text = scanner.text
        attributes: dict[str, str] = {}
        while (match := _ATTRIBUTE.match(text, scanner.position)) is not None:
            name = match[1]
            if name in attributes:
                raise scanner.error(f'attribute "{name}" is given twice', match.start(1))
            end = scanner.position = match.end()
            following = text[end : end + 1]
            if (
                following == "{"
                and not match[2]
                and (flat := _FLAT_BRACES.match(text, end)) is not None
            ):
                value = flat[0]
                scanner.position = flat.end()
            elif match[2] and following in ",\n}":
                value = match[2]
            else:
                scanner.position = match.start(2)
                value = self._value()
            attributes[name] = value
        return attributes

    def _value(self) -> str:
        """Read a value up to a comma, blank or closing bracket.

        It consists of plain text, strings and balanced brackets.
        """
        scanner = self.scanner
        text, start = scanner.text, scanner.position
        while True:
            plain = _PLAIN_PART.match(text, scanner.position)
            if plain is not None:
                scanner.position = plain.end()
            character = text[scanner.position : scanner.position + 1]
            if character == '"':
                string = STRINGS.match(text, scanner.position)
                if string is None:
                    raise scanner.error("this string has no end")
                scanner.position = string.end()
            elif character and character in "{[(":
                scanner.balanced()
            elif character and character in " \t" and scanner.position > start:
                if _ARRAY.fullmatch(text, start, scanner.position):  # literal=s32[] 1
                    scanner.skip()
                    continue
                brace = _SPACED_BRACE.match(text, scanner.position)
                if brace is None:
                    break
                scanner.position = brace.end()
            else:
                break
        if scanner.position == start:
            raise scanner.expected("a value")
        return text[start : scanner.position]

    def _shape(self, depth: int) -> Shape:
        """Read an array, a tuple or a buffer."""
        scanner = self.scanner
        if depth > DEPTH:
            raise scanner.error(f"shapes are nested more than {DEPTH} deep")
        scanner.skip()
        place = scanner.position
        if scanner.take("b("):
            inside = self._shape(depth + 1)
            scanner.expect(")")
            return Shape("buffer", elements=(inside,))
        if scanner.take("("):
            elements: list[Shape] = []
            if scanner.take(")"):
                return Shape("tuple", elements=())
            while True:
                elements.append(self._shape(depth + 1))
                if scanner.take(")"):
                    return Shape("tuple", elements=tuple(elements))
                scanner.expect(",", '"," or ")"')
        array = _ARRAY.match(scanner.text, scanner.position)
        if array is not None:
            scanner.position = array.end()
            shape_text = array[0]
        else:
            spaced = _SPACED_ARRAY.match(scanner.text, scanner.position)
            if spaced is None:
                raise scanner.expected("a shape")
            scanner.position = spaced.end()
            shape_text = spaced[1] + _without_blanks(spaced[2])
        layout = None if "{" in shape_text else _LAYOUT.match(scanner.text, scanner.position)
        if layout is not None:  # after a blank, or with braces within
            scanner.position = layout.end()
            shape_text += _without_blanks(scanner.balanced())
        return self._array(shape_text, place)

    def _array(self, text: str, place: int) -> Shape:
        """Return the shape of an array from its text.

        Equal texts give the same object.
        """
        cached = self._shapes.get(text)
        if cached is not None:
            return cached
        scanner = self.scanner
        match = _PARTS_OF_ARRAY.fullmatch(text)
        if match is None:
            raise scanner.error("expected a shape", place)
        kind, dims, order, rest = match.groups()
        if kind not in TYPES:
            raise scanner.error(f'expected a shape, found the type "{kind}"', place)
        sizes: list[int] = []
        dynamic: list[int] = []
        for index, dim in enumerate(dims.split(",") if dims.strip() else ()):
            size = _DIMENSION.fullmatch(dim.strip())
            if size is None or (size[2] is not None and len(size[2]) > 18):
                raise scanner.error(f'expected a size, found "{dim.strip()}"', place)
            sizes.append(-1 if size[3] else int(size[2]))
            if size[1]:
                dynamic.append(index)
        layout: Layout | None = None
        if order is not None:
            axes = [axis.strip() for axis in order.split(",")] if order.strip() else []
            if (
                sorted(axes) != sorted(map(str, range(len(sizes))))
                and (axes or rest is None)
                and (axes or sizes)
            ):
                raise scanner.error(
                    f"the layout {{{order}}} does not order {len(sizes)} dimensions", place
                )
            layout = Layout(tuple(map(int, axes)), rest)
        shape = self._shapes[text] = Shape(kind, tuple(sizes), layout, tuple(dynamic))
        return shape


def _without_comments(text: str) -> str:
    return _ANY_COMMENT.sub("", text).strip()


def _without_blanks(text: str) -> str:
    return "".join(_without_comments(text).split())
