"""The pictures of a search: scores, the best policies over time, and all parameters tried.

Provides `draw_scores`, `draw_policies` and `draw_history`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turnwise.report.curve import BLUE, GREEN, GREY, ORANGE, drawable, png
from turnwise.runs.files import write_atomically
from turnwise.search.history import History, Try
from turnwise.search.policies import LinearPolicy, Policy
from turnwise.search.space import Params
from turnwise.search.tasks import SearchTask

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLANES = ("mountain-car", "mountain-car-continuous")
"""The tasks whose policy is drawn over the plane of their position and speed."""
PANELS = 8
"""The most policies that are drawn beside each other."""
NUMBERED = 24
"""The most parameters whose values are written in a strip."""


def draw_scores(path: Path, title: str, task: SearchTask, history: History) -> None:
    """Write the score of each policy, the best so far, and published scores, as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.2), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(drawable(title), fontsize=11, loc="left", weight="bold")
    searched = [each for each in history.tries if each.source == "search"]
    axes.errorbar(
        [each.slot + 1 for each in searched],
        [each.mean for each in searched],
        yerr=[each.stderr or 0.0 for each in searched],
        fmt="o", ms=3, lw=0.6, color=GREY, alpha=0.6, label="a policy, all its episodes",
    )  # fmt: skip
    places = range(history.slots - len(history.best_so_far) + 1, history.slots + 1)
    axes.step(places, history.best_so_far, where="post", color=BLUE, lw=1.8, label="best so far")
    if task.published is not None and not task.own_rules:
        for name, score, colour in (
            ("ProPS, published", task.published.props[0], ORANGE),
            ("ProPS+, published", task.published.props_plus[0], GREEN),
        ):
            axes.axhline(score, color=colour, lw=1.0, ls=(0, (4, 3)), label=name)
    axes.set_xlabel("evaluation", fontsize=9)
    axes.set_ylabel("mean return", fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="best")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    write_atomically(path, png(figure))


def draw_policies(path: Path, task: SearchTask, policy: Policy, history: History) -> None:
    """Write the best policy at several times of the search, beside each other, as PNG."""
    from matplotlib.figure import Figure

    chosen = chosen_leaders(history)
    figure = Figure(figsize=(2.3 * len(chosen), 3.0), dpi=130, layout="constrained")
    for place, (slot, tried) in enumerate(chosen):
        axes = figure.add_subplot(1, len(chosen), place + 1)
        axes.set_title(f"evaluation {slot}: {tried.mean:.3g}", fontsize=9)
        assert tried.params is not None, "learners without parameters are not drawn"
        draw_policy(axes, task, policy, tried.params)
    write_atomically(path, png(figure))


def draw_history(path: Path, policy: Policy, history: History) -> None:
    """Write all parameters that were tried, in order, above their scores, as PNG."""
    from matplotlib.figure import Figure

    tries = [each for each in history.tries if each.params is not None]
    values = np.array([policy.space.values(t.params) for t in tries if t.params is not None])
    figure = Figure(figsize=(9.0, 4.8), dpi=130, layout="constrained")
    grid = figure.add_gridspec(2, 1, height_ratios=(2.2, 1.0))
    upper, lower = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
    shown = upper.imshow(
        values.T, aspect="auto", interpolation="nearest", **_colours(policy), origin="upper"
    )
    space = policy.space
    ticks = range(space.low, space.high + 1) if space.choices and space.size <= NUMBERED else None
    figure.colorbar(shown, ax=upper, pad=0.01, ticks=ticks).ax.tick_params(labelsize=7)
    upper.set_ylabel("parameter", fontsize=9)
    warm = sum(each.source == "warm-up" for each in tries)
    for axes in (upper, lower):
        axes.set_xlim(-0.5, len(tries) - 0.5)
        axes.tick_params(labelsize=8)
        if warm:
            axes.axvline(warm - 0.5, color=ORANGE, lw=1.0)
    lower.plot([each.mean for each in tries], "o", ms=2.5, color=BLUE)
    lower.set_ylabel("score", fontsize=9)
    lower.set_xlabel("policy, in the order of the tries; left of the line is the warm-up"
                     if warm else "policy, in the order of the tries", fontsize=9)  # fmt: skip
    write_atomically(path, png(figure))


def chosen_leaders(history: History) -> list[tuple[int, Try]]:
    """Return policies that were the best so far, with the evaluation since which each was.

    They are all changes of the leader, or at most `PANELS` of them, the first and the last among
    them.
    """
    first = history.slots - len(history.leaders) + 1
    changes = [
        (first + place, history.tries[leader])
        for place, leader in enumerate(history.leaders)
        if place == 0 or history.leaders[place - 1] != leader
    ]
    changes = [(slot, tried) for slot, tried in changes if tried.params is not None]
    count = min(len(changes), PANELS)
    return [changes[round(i * (len(changes) - 1) / max(count - 1, 1))] for i in range(count)]


def draw_policy(axes: Axes, task: SearchTask, policy: Policy, params: Params) -> None:
    """Draw a policy: arrows on a grid, the actions of a plane of inputs, or its parameters."""
    axes.set_xticks([])
    axes.set_yticks([])
    if task.grid is not None:
        _draw_grid(axes, task.grid, task.signs, params)
    elif isinstance(policy, LinearPolicy) and task.name in PLANES:
        _draw_plane(axes, policy, params)
    elif isinstance(policy, LinearPolicy):
        values = policy.space.values(params).reshape(-1, policy.outputs)
        axes.imshow(values, aspect="auto", **_colours(policy))
        axes.set_xlabel("output", fontsize=8)
        axes.set_ylabel("input, the last is the bias", fontsize=8)
    else:
        values = policy.space.values(params)[:, None]
        axes.imshow(values, aspect="auto", **_colours(policy))
        for row, value in enumerate(params if len(params) <= NUMBERED else ()):
            axes.text(
                0, row, f"{row}: {value}", ha="center", va="center", fontsize=7,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8},
            )  # fmt: skip
        axes.set_ylabel("state: action", fontsize=8)


def _draw_grid(axes: Axes, grid: tuple[int, int], signs: str, params: Params) -> None:
    """Draw a sign for the action of each cell."""
    rows, columns = grid
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_aspect("equal")
    size = 13 if columns <= 4 else 6
    for state, action in enumerate(params):
        axes.text(
            state % columns, state // columns, signs[action], ha="center", va="center",
            fontsize=size,
        )  # fmt: skip
    for line in range(1, max(rows, columns)):
        if line < rows:
            axes.axhline(line - 0.5, color="#CCCCCC", lw=0.6)
        if line < columns:
            axes.axvline(line - 0.5, color="#CCCCCC", lw=0.6)


def _draw_plane(axes: Axes, policy: LinearPolicy, params: Params) -> None:
    """Draw the action over the two inputs of MountainCar: its position and its speed."""
    side = 60
    position, speed = np.meshgrid(np.linspace(-1.2, 0.6, side), np.linspace(0.07, -0.07, side))
    seen = np.stack([position.ravel(), speed.ravel()], axis=1)
    actions: NDArray[np.float64] = np.asarray(policy.batch(params)(seen), dtype=float)
    axes.imshow(actions.reshape(side, side), aspect="auto", cmap="coolwarm")
    axes.set_xlabel("position", fontsize=8)
    axes.set_ylabel("speed", fontsize=8)


def _colours(policy: Policy) -> dict[str, Any]:
    """Return the colours of parameters: one for each action, blue to red for weights."""
    from matplotlib import colormaps

    space = policy.space
    if space.choices:
        colours = colormaps["viridis"].resampled(space.size)
        return {"cmap": colours, "vmin": space.low - 0.5, "vmax": space.high + 0.5}
    return {"cmap": "coolwarm", "vmin": space.low * space.step, "vmax": space.high * space.step}
