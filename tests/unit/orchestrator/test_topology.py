"""Shapes worked out by hand, and trees too deep for recursion."""

import numpy as np
import pytest

from brokerbed.scenario import topology
from brokerbed.scenario.topology import BROKERS_MAX, TopologyError, Tree


def shape(tree: Tree) -> dict[str, str | None]:
    return {name: None if p < 0 else tree.names[p] for name, p in zip(tree.names, tree.parents, strict=True)}


def test_levels_fifteen_brokers_width_four() -> None:
    """Sizes 1, 2, 4, 4, 4: two children each from the left, so the right half of a full level has none."""
    parents = shape(topology.levels(15, 4))
    assert parents == {
        "b0": None,
        "b1": "b0", "b2": "b0",
        "b3": "b1", "b4": "b1", "b5": "b2", "b6": "b2",
        "b7": "b3", "b8": "b3", "b9": "b4", "b10": "b4",
        "b11": "b7", "b12": "b7", "b13": "b8", "b14": "b8",
    }  # fmt: skip


def test_levels_width_that_is_no_power_of_two() -> None:
    assert list(np.diff([*topology.levels(14, 3).level_starts, 14])) == [1, 2, 3, 3, 3, 2]


@pytest.mark.parametrize(("width", "levels", "mean_depth"), [(1, 127, 63), (8, 18, 9.5276), (64, 7, 5.0551)])
def test_levels_mean_depth_of_the_papers_trees(width: int, levels: int, mean_depth: float) -> None:
    tree = topology.levels(127, width)
    assert len(tree.level_starts) == levels
    assert round(float(tree.depths.mean()), 4) == mean_depth


def test_regular_three_children_four_levels() -> None:
    tree = topology.regular(3, 4)
    assert len(tree) == 1 + 3 + 9 + 27
    assert shape(tree)["b4"] == "b1"
    assert shape(tree)["b39"] == "b12"


def test_regular_too_many_brokers_is_refused_at_once() -> None:
    with pytest.raises(TopologyError, match="more than 100000 brokers"):
        topology.regular(99_999, 99_999)


def test_line_and_star() -> None:
    assert shape(topology.line(3)) == {"b0": None, "b1": "b0", "b2": "b1"}
    assert shape(topology.star(3)) == {"b0": None, "b1": "b0", "b2": "b0"}
    assert len(topology.star(1)) == len(topology.line(1)) == 1


def test_explicit_keeps_names_and_finds_levels() -> None:
    tree = topology.explicit({"leaf": "mid", "other": "top", "mid": "top", "top": None})
    assert tree.names == ("top", "other", "mid", "leaf")
    assert tree.depths.tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("parents", "problem", "blamed"),
    [
        ({"a": "b", "b": "a"}, "no broker is the root", None),
        ({"a": None, "b": None}, "two roots, a and b", "b"),
        ({"a": None, "b": "x"}, "the parent x is no broker", "b"),
        ({"a": None, "b": "b"}, "circle: b -> b", "b"),
        ({"a": None, "b": "d", "c": "b", "d": "c", "e": "d"}, "circle: b -> d -> c -> b", "b"),
        ({"r": None, "tail": "x", "x": "y", "y": "x"}, "circle: x -> y -> x", "x"),
    ],
)
def test_explicit_no_tree(parents: dict[str, str | None], problem: str, blamed: str | None) -> None:
    with pytest.raises(TopologyError, match=problem) as error:
        topology.explicit(parents)
    assert error.value.broker == blamed


def test_path_up_and_down() -> None:
    tree = topology.levels(15, 8)
    names = [tree.names[position] for position in tree.path("b7", "b4")]
    assert names == ["b7", "b3", "b1", "b4"]
    assert [tree.names[position] for position in tree.path("b4", "b7")] == names[::-1]
    assert [tree.names[position] for position in tree.path("b5", "b5")] == ["b5"]
    assert [tree.names[position] for position in tree.path("b0", "b6")] == ["b0", "b2", "b6"]


def test_are_neighbours() -> None:
    tree = topology.line(3)
    assert tree.are_neighbours("b0", "b1")
    assert tree.are_neighbours("b2", "b1")
    assert not tree.are_neighbours("b0", "b2")
    assert not tree.are_neighbours("b1", "b1")


def test_subtree_sums_and_children_sums_by_hand() -> None:
    tree = topology.explicit({"r": None, "a": "r", "b": "r", "c": "b"})
    values = np.array([1.0, 2.0, 4.0, 8.0])
    assert tree.subtree_sums(values).tolist() == [15, 2, 12, 8]
    assert tree.children_sums(values).tolist() == [6, 0, 8, 0]
    assert values.tolist() == [1, 2, 4, 8]  # the argument is left alone


@pytest.mark.parametrize("kind", ["line", "explicit line", "star", "levels", "explicit star"])
def test_largest_trees(kind: str) -> None:
    """100 000 brokers of every shape, without recursion: the sum at the root counts them all."""
    chain = {f"n{i}": f"n{i + 1}" for i in range(BROKERS_MAX - 1)} | {f"n{BROKERS_MAX - 1}": None}
    hub = {f"n{i}": "n0" if i else None for i in range(BROKERS_MAX)}
    tree = {
        "line": lambda: topology.line(BROKERS_MAX),
        "explicit line": lambda: topology.explicit(chain),
        "star": lambda: topology.star(BROKERS_MAX),
        "levels": lambda: topology.levels(BROKERS_MAX, 8),
        "explicit star": lambda: topology.explicit(hub),
    }[kind]()
    sums = tree.subtree_sums(np.ones(BROKERS_MAX))
    assert sums[0] == BROKERS_MAX
    assert sums[-1] == 1
    assert sums.sum() == (tree.depths + 1).sum()
    assert len(tree.path(tree.names[-1], tree.names[0])) == tree.depths[-1] + 1


def test_circle_of_100_000_brokers_is_reported_briefly() -> None:
    circle: dict[str, str | None] = {f"n{i}": f"n{(i + 1) % 99_999}" for i in range(99_999)}
    with pytest.raises(TopologyError) as error:
        topology.explicit(circle | {"root": None})
    assert len(str(error.value)) < 200


def test_sums_outside_are_sums_over_everything_else() -> None:
    """r has the children a, b, c; a has d and e; d has f. Worked out by hand, with the values 1, 2, 4, ... in tree order."""
    tree = topology.explicit({"r": None, "a": "r", "b": "r", "c": "r", "d": "a", "e": "a", "f": "d"})
    values = np.array([[1.0], [2.0], [4.0], [8.0], [16.0], [32.0], [64.0]])  # r a b c d e f
    below = {"r": 127, "a": 2 + 16 + 32 + 64, "b": 4, "c": 8, "d": 16 + 64, "e": 32, "f": 64}
    inside, outside = tree.sums_inside_and_outside(values)
    assert inside[:, 0].tolist() == [below[name] for name in tree.names]
    assert outside[:, 0].tolist() == [127 - below[name] for name in tree.names]


def test_sums_outside_of_nothing_are_exactly_zero() -> None:
    """All of it is in the subtree of a: a difference of rounded sums could leave something."""
    tree = topology.explicit({"r": None, "a": "r", "b": "a", "c": "a", "d": "a", "e": "r"})
    values = np.zeros((6, 1))
    values[[tree.index[name] for name in "bcd"], 0] = 0.1, 0.7, 0.2  # which do not add up to the same in every order
    _, outside = tree.sums_inside_and_outside(values)
    assert outside[tree.index["a"], 0] == 0.0
    assert outside[tree.index["e"], 0] == pytest.approx(1.0)
    assert outside[tree.index["b"], 0] == pytest.approx(0.9)
