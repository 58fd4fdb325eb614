"""Damages HLO texts at random; the reader must read or refuse each, and do so quickly.

python plugins/hlo/tests/damage.py [--cases 100000] [--seed 0] [--import] TEXT...
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

from gehost_hlo import HloModule, HloSyntaxError, UntranslatableError, import_module, parse, to_text

WORDS = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    "=",
    "%",
    "ROOT ",
    "ENTRY ",
    '"',
    "/*",
    "*/",
    "//",
    "#",
    "f32[",
    "\\",
    "0",
    "-",
    "\x00",
    "é",
    "{...}",
    "->",
    "<=",
    "?",
    "b(",
    ":",
    "\n",
    "constant(",
    "HloModule ",
]
NUMBERS = ["0", "1", "2", "3", "7", "-1", "64", "100000", "123456789012"]
NUMBER = re.compile(r"(?<![\w.-])-?[0-9]+(?![\w.])")
WORD = re.compile(r"[A-Za-z_][\w.-]*")
LIMIT = 1.0
"""Seconds of processor time that a text may take."""


def damaged(text: str, draw: random.Random) -> str:
    """Cut, delete, insert, repeat or swap, once to three times."""
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(text) + 1)
        end = min(len(text), place + draw.choice([1, 2, 5, 20, 200]))
        kind = draw.randrange(10)
        if kind == 0:
            text = text[:place]
        elif kind == 1:
            text = text[:place] + text[end:]
        elif kind == 2:
            text = text[:place] + draw.choice(WORDS) * draw.choice([1, 1, 2, 50]) + text[place:]
        elif kind == 3:
            text = text[:end] + text[place:end] * draw.choice([1, 2, 30]) + text[end:]
        elif kind == 4:
            text = text[:place] + draw.choice(WORDS) + text[end:]
        elif kind == 5:
            other = draw.randrange(len(text) + 1)
            text = text[:place] + text[other : other + 40] + text[place:]
        else:  # a whole number or word: the text stays grammatical
            pattern = NUMBER if kind < 8 else WORD
            match = pattern.search(text, place)
            other = pattern.search(text, draw.randrange(len(text) + 1))
            if match is not None and other is not None:
                new = draw.choice(NUMBERS) if kind == 6 else other[0]
                text = text[: match.start()] + new + text[match.end() :]
    return text


def run(texts: list[str], cases: int, seed: int, *, imports: bool = False) -> Counter[str]:
    """Read damaged texts; returns how many were read and refused, and the longest time in ms.

    With ``imports``, those that are read are imported, too, which must give a model or a refusal.

    Raises:
        AssertionError: a text raised something else, took too long, or is not printed as it was read.
    """
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    for case in range(cases):
        text = damaged(draw.choice(texts), draw)
        start = time.process_time()
        try:
            module = parse(text)
        except HloSyntaxError as error:
            place = (error.line, error.column, error.excerpt[-1])
            counts["refused" if min(place[:2]) >= 1 and place[2] == "^" else "without a place"] += 1
        except Exception as error:
            raise AssertionError(
                f"case {case}: {type(error).__name__}: {error}\n{text!r}"
            ) from error
        else:
            counts["read"] += 1
            again = parse(to_text(module))
            assert again == module, f"case {case}: printed differently\n{text!r}"
            if imports:
                counts[_imported(module, text, case)] += 1
        assert not counts["without a place"], f"case {case}: {text!r}"
        elapsed = time.process_time() - start
        assert elapsed < LIMIT, f"case {case}: {elapsed:.1f} s\n{text!r}"
        counts["longest ms"] = max(counts["longest ms"], int(1000 * elapsed))
    return counts


def _imported(module: HloModule, text: str, case: int) -> str:
    try:
        import_module(module)
    except UntranslatableError:
        return "untranslated"
    except Exception as error:
        raise AssertionError(
            f"case {case}: import: {type(error).__name__}: {error}\n{text!r}"
        ) from error
    return "imported"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--import", dest="imports", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = run(
        [path.read_text() for path in options.texts],
        options.cases,
        options.seed,
        imports=options.imports,
    )
    sys.stdout.write(f"{options.cases} cases: {dict(counts)}\n")


if __name__ == "__main__":
    main()
