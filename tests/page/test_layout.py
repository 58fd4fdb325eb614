"""Boxes of a drawing: apart from each other, every edge downwards and around them."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gehost.page.layout import Layout, Size, lay_out


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, Size], list[tuple[int, int]]]:
    """Boxes of any sizes; edges from a lower number to a higher one."""
    count = draw(st.integers(1, 12))
    sides = st.integers(20, 120)
    sizes = {box: Size(draw(sides), draw(sides), draw(st.integers(0, 200))) for box in range(count)}
    pairs = list(itertools.combinations(range(count), 2))
    return sizes, draw(st.lists(st.sampled_from(pairs), unique=True, max_size=24)) if pairs else []


def rectangles(layout: Layout, sizes: dict[int, Size]) -> list[tuple[float, float, float, float]]:
    return [
        (x - sizes[b].width / 2, y, x + sizes[b].width / 2, y + sizes[b].height)
        for b, (x, y) in layout.tops.items()
    ]


on_any_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@on_any_machine
@given(graphs())
def test_boxes_do_not_overlap_and_are_inside(
    graph: tuple[dict[int, Size], list[tuple[int, int]]],
) -> None:
    sizes, edges = graph
    layout = lay_out(sizes, edges)
    result = rectangles(layout, sizes)
    assert len(result) == len(sizes)
    for left, top, right, bottom in result:
        assert -0.01 <= left <= right <= layout.width + 0.01
        assert 0 <= top <= bottom <= layout.height
    for a, b in itertools.combinations(result, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


@on_any_machine
@given(graphs())
def test_edges_go_down_from_box_to_box_and_straight_through_layers_beside_the_boxes(
    graph: tuple[dict[int, Size], list[tuple[int, int]]],
) -> None:
    sizes, edges = graph
    layout = lay_out(sizes, edges)
    boxes = rectangles(layout, sizes)
    for (start, end), path in zip(edges, layout.paths, strict=True):
        x, y = layout.tops[start]
        assert path[0] == (x, y + sizes[start].height)
        assert path[-1] == layout.tops[end]
        assert all(upper[1] <= lower[1] for upper, lower in itertools.pairwise(path))
        assert len(path) % 2 == 1
        for (x1, y1), (x2, y2) in zip(path[::2], path[1::2], strict=False):
            assert x1 == x2
            assert not any(
                left < x1 < right and top < y2 and y1 < bottom for left, top, right, bottom in boxes
            )


@on_any_machine
@given(graphs())
def test_the_same_graph_is_laid_out_in_the_same_way(
    graph: tuple[dict[int, Size], list[tuple[int, int]]],
) -> None:
    assert lay_out(*graph) == lay_out(*graph)


def test_a_chain_hangs_straight_and_a_source_stands_beside_what_it_feeds() -> None:
    box = Size(50, 20)
    layout = lay_out(dict.fromkeys(range(5), box), [(0, 1), (1, 2), (2, 3), (4, 3)])
    assert len({layout.tops[number][0] for number in (0, 1, 2)}) == 1
    assert layout.tops[4][1] == layout.tops[2][1]


def test_edges_that_can_do_without_do_not_cross() -> None:
    layout = lay_out(dict.fromkeys(range(4), Size(50, 20)), [(0, 3), (1, 2)])
    left_to_right = sorted((0, 1), key=lambda box: layout.tops[box][0])
    assert sorted((2, 3), key=lambda box: layout.tops[box][0]) == [
        {0: 3, 1: 2}[box] for box in left_to_right
    ]


def test_nothing_takes_no_room() -> None:
    assert lay_out({}, []) == Layout(0, 0, {}, [])
