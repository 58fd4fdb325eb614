"""Assembly of calls and of ``scf``: loops and conditions, whose regions are fused."""

from __future__ import annotations

from gehost_linalg.generic import Opaque, Value
from gehost_linalg.mlir.function import Statement
from gehost_linalg.mlir.reader import Reader
from gehost_mlir.source import SSA, SYMBOL


def read_terminator(reader: Reader, statement: Statement) -> list[Value]:
    """``scf.yield %a : type``: the end of a region."""
    operands = reader.operands(until=("}",)) if reader.peek("%") else []
    reader.ops.append(Opaque(statement.name, tuple(operands), ()))
    return []


def read_condition(reader: Reader, statement: Statement) -> list[Value]:
    """``scf.condition(%go) %a : type``."""
    reader.expect("(")
    go = reader.use()
    reader.expect(")")
    operands = reader.operands(until=("}",)) if reader.peek("%") else []
    reader.ops.append(Opaque(statement.name, (go, *operands), ()))
    return []


def read_call(reader: Reader, statement: Statement) -> list[Value]:
    """``call @f(%a) : (type) -> type``; ``func.call`` is the same."""
    callee = reader.take(SYMBOL, "the function's name")
    operands = reader.listed("(", ")", reader.use)
    if reader.peek("{"):
        reader.dictionary()
    reader.expect(":")
    reader.expect("(")
    reader.check_types(operands)
    reader.expect(")")
    reader.expect("->")
    results = reader.result_types(statement.results)
    name = "util.call" if statement.name == "util.call" else "func.call"
    reader.ops.append(Opaque(name, tuple(operands), tuple(results), f"<{{callee = {callee}}}>"))
    return results


def read_for(reader: Reader, statement: Statement) -> list[Value]:
    """``scf.for %i = %a to %b step %c iter_args(%x = %y) -> (type) : i32 {…}``."""
    attribute = "{unsignedCmp}" if reader.accept("unsigned") else ""
    counter = reader.take(SSA, "the loop's index")
    reader.expect("=")
    bounds = [reader.use()]
    for word in ("to", "step"):
        reader.expect(word)
        bounds.append(reader.use())
    names, initial = _initial(reader) if reader.accept("iter_args") else ([], [])
    results = reader.result_types(statement.results) if reader.accept("->") else []
    _check_initial(reader, initial, results)
    kind = reader.type("").type_text if reader.accept(":") else "index"
    for bound in bounds:
        if bound.type_text != kind:
            raise reader.error(f"%{bound.name} is {bound.type_text}, not {kind}")
    arguments = {counter: Value(counter[1:], kind, kind="scalar")}
    arguments |= {ssa: _like(bound, ssa[1:]) for ssa, bound in zip(names, initial, strict=True)}
    reader.region(statement.name, [*bounds, *initial], arguments, "scf.yield")
    return _close(reader, statement, results, attribute)


def _initial(reader: Reader) -> tuple[list[str], list[Value]]:
    """``(%a = %x, …)``."""
    names: list[str] = []

    def read() -> Value:
        names.append(reader.take(SSA, "an argument"))
        reader.expect("=")
        return reader.use()

    return names, reader.listed("(", ")", read)


def _check_initial(reader: Reader, initial: list[Value], results: list[Value]) -> None:
    if [item.type_text for item in initial] != [item.type_text for item in results]:
        kinds = ", ".join(item.type_text for item in initial)
        raise reader.error(f"the loop returns other types than those of its values, {kinds}")


def _like(value: Value, name: str) -> Value:
    return Value(name, value.dtype, value.shape, kind="scalar" if value.is_scalar else "tensor")


def _close(
    reader: Reader, statement: Statement, results: list[Value], attribute: str = ""
) -> list[Value]:
    if reader.accept("attributes") or reader.peek("{"):
        reader.dictionary()
    reader.ops.append(Opaque(statement.name, (), tuple(results), attribute, part="close"))
    return results


def read_if(reader: Reader, statement: Statement) -> list[Value]:
    """``scf.if %go -> (type) {…} else {…}``."""
    go = reader.use()
    results = reader.result_types(statement.results) if reader.accept("->") else []
    reader.region(statement.name, [go], terminator="scf.yield")
    if reader.accept("else"):
        reader.region(statement.name, None, terminator="scf.yield")
    else:
        reader.ops.append(Opaque(statement.name, (), (), part="next"))
    return _close(reader, statement, results)


def read_while(reader: Reader, statement: Statement) -> list[Value]:
    """``scf.while (%a = %x) : (type) -> type {…} do {…}``."""
    names, initial = _initial(reader) if reader.peek("(") else ([], [])
    reader.expect(":")
    reader.expect("(")
    reader.check_types(initial)
    reader.expect(")")
    reader.expect("->")
    results = reader.result_types(statement.results)
    arguments = {ssa: _like(item, ssa[1:]) for ssa, item in zip(names, initial, strict=True)}
    reader.region(statement.name, initial, arguments)
    reader.expect("do")
    reader.region(statement.name, None, terminator="scf.yield")
    return _close(reader, statement, results)


def read_index_switch(reader: Reader, statement: Statement) -> list[Value]:
    """``scf.index_switch %i -> type case 2 {…} default {…}``; the default is its first region."""
    at = reader.use()
    if reader.peek("{"):
        reader.dictionary()
    results = reader.result_types(statement.results) if reader.accept("->") else []
    cases: list[str] = []
    before, reader.ops = reader.ops, []
    while reader.accept("case"):
        cases.append(str(reader.integer("a number")))
        reader.region(statement.name, None, terminator="scf.yield")
    bodies, reader.ops = reader.ops, before
    reader.expect("default")
    reader.region(statement.name, [at], terminator="scf.yield")
    reader.ops += bodies
    listing = f": {', '.join(cases)}" if cases else ""
    return _close(reader, statement, results, f"<{{cases = array<i64{listing}>}}>")
