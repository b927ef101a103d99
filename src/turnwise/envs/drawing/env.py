"""Drawing: write a program whose calls of drawing primitives turn one grid into another.

Task: pairs of grids, at least one. A program is to turn the first grid of each pair into the
    second. By default one pair, a random drawing (`drawing.generator`); `picture` gives a named
    target on an empty grid, `path` the training pairs of a task of ARC-AGI in its JSON format.
What each role sees: the only role, `player`, reads all pairs.
Actions: a program, as free text (`drawing.interpreter` has the language).
Rewards: `pixels` (agent), the share of cells that the program's grids have right, in the mean over
    pairs; 0 for a pair with another shape, and for a program that fails. `exact` (agent), 1 if all
    grids are right. With `sharing`, also `shared` (agent), in which a right cell counts the more
    the fewer programs of the batch have it right.
End: terminated by the program. The score is `exact`.
Measures: `pixels`, and `fails`, 1 if the program failed; with `path` also `test_exact`, 1 if the
    test pairs of the file are right, too. They change no reward.
Baselines: random, a random program of the generator for the first pair; optimal, the program that
    drew a random drawing, or one that paints the rows of the target. Where there are several pairs
    it is `painter`, which paints the first target, and is hardly ever right.

Example:
    >>> env = ArcDraw(ArcDrawConfig(picture="9-vertical-lines"))
    >>> task = Task(id="t", env=env.name, seed=0, data=env.tasks("test")[0])
    >>> state = env.reset(task)
    >>> env.observe(state, "player").text.splitlines()[:5]
    ['from', '9 x 9 of 0', 'to', '9 x 9', '0 1 2 3 4 5 6 7 8 9']
    >>> step = env.step(state, "player", "draw_pixel(img, (0, 0), 1)", np.random.default_rng(0))
    >>> round(step.rewards["pixels"], 3), step.rewards["exact"]
    (0.012, 0.0)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from turnwise.envs.base import (
    Baseline,
    BatchRewards,
    Env,
    Level,
    Observation,
    Relabelled,
    RewardTiming,
    Step,
)
from turnwise.envs.drawing.arc_files import read_task
from turnwise.envs.drawing.generator import random_drawing, random_program
from turnwise.envs.drawing.interpreter import (
    Grid,
    ProgramFailure,
    beginning,
    execute,
    parse_program,
    pruned,
    run_program,
)
from turnwise.envs.drawing.painter import painted
from turnwise.envs.drawing.pictures import PICTURES
from turnwise.envs.drawing.primitives import LARGEST_SIDE
from turnwise.envs.drawing.python_programs import PythonRunner
from turnwise.envs.drawing.sharing import shared_rewards
from turnwise.envs.drawing.text import Spacing, grid_text
from turnwise.errors import EnvError, IllegalActionError, SandboxError, unknown_name
from turnwise.settings import Settings
from turnwise.types import Episode, Split, Task

Pair = tuple[Grid, Grid]
RANDOM = "random"
"""The picture that is a random drawing."""


class ArcDrawConfig(Settings):
    """The grids, and how they are shown."""

    picture: str = RANDOM
    """`random` drawings; or a named target, such as `12-squares`, on an empty grid, which is then
    the only task of every split."""
    path: str | None = None
    """A JSON file of one task of ARC-AGI; its training pairs are the task of every split."""
    smallest: int = Field(default=3, ge=3, le=LARGEST_SIDE)
    """The fewest rows and columns of random drawings."""
    largest: int = Field(default=10, ge=3, le=LARGEST_SIDE)
    """The most rows and columns of random drawings."""
    fewest_calls: int = Field(default=1, ge=1)
    """The fewest calls of random drawings, before those without effect are dropped."""
    most_calls: int = Field(default=5, ge=1, le=200)
    """The most calls of random drawings."""
    spacing: Spacing = "spaced"
    """How texts are written: `spaced`, so that each colour and each digit is one token of a model
    made on the spot; or `compact`, for pretrained tokenizers."""
    runner: Literal["interpreter", "sandbox"] = "interpreter"
    """How programs are run: by an interpreter of calls with literal arguments, or as Python in the
    sandbox, which takes milliseconds."""
    sharing: bool = False
    """Whether programs also earn `shared`: the cells that they have right, each divided by the
    share of the batch's programs for the same task that have it right (implicit fitness sharing).
    Training on it keeps cells that few programs have right."""
    relabel_failed: bool = True
    """Whether hindsight also imitates programs that fail: their calls before the line that
    failed."""

    @model_validator(mode="after")
    def _check(self) -> ArcDrawConfig:
        named = self.picture != RANDOM
        if named and self.path is not None:
            raise ValueError("picture and path both give the task: leave one out")
        if named and self.picture not in PICTURES:
            raise unknown_name("picture", self.picture, [RANDOM, *PICTURES])
        if self.largest < self.smallest or self.most_calls < self.fewest_calls:
            raise ValueError("the largest number is below the smallest one: raise it")
        sized = {"smallest", "largest", "fewest_calls", "most_calls"} & self.model_fields_set
        if sized and (named or self.path is not None):
            raise ValueError(f"{min(sized)} is for random drawings and a task is given: leave it")
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawingState:
    """The pairs of grids, and what the program made of the first grids; None before it.

    `tests` are pairs that the player does not see, `author` is the program of a random drawing.
    `made` is empty if the program failed, and `failure` says why. `tested` is what it made of the
    tests, empty if it failed there or before.
    """

    pairs: tuple[Pair, ...]
    tests: tuple[Pair, ...] = ()
    author: str = ""
    made: tuple[Grid, ...] | None = None
    tested: tuple[Grid, ...] = ()
    failure: str = ""

    @property
    def given(self) -> list[Grid]:
        """The first grid of each pair, on which programs are run."""
        return [given for given, _ in self.pairs]


class ArcDraw(Env[DrawingState]):
    """Turn grids into other grids by a program of drawing primitives."""

    name = "arc-draw"
    config_class = ArcDrawConfig
    components: ClassVar[Mapping[str, Level]] = {"pixels": "agent", "exact": "agent"}
    reward_timing: RewardTiming = "terminal"
    files: ClassVar[tuple[str, ...]] = ("path",)
    max_turns = 1

    def __init__(self, config: ArcDrawConfig | None = None) -> None:
        super().__init__(config or ArcDrawConfig())
        self.blocking = self.runs_programs = self.config.runner == "sandbox"
        if self.config.sharing:
            both = {**self.components, "shared": "agent"}
            self.components = both  # pyright: ignore[reportAttributeAccessIssue]
        self._python = PythonRunner()
        self._only: dict[str, Any] | None = None
        if self.config.picture != RANDOM:
            target = PICTURES[self.config.picture]
            self._only = {"pairs": [[_empty(target), list(target)]]}
        elif self.config.path is not None:
            self._only = read_task(Path(self.config.path))

    @property
    def single_task(self) -> bool:
        """Whether a picture or a file is the only task."""
        return self._only is not None

    def generate(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a random drawing."""
        if self._only is not None:
            return self._only
        own = self.config
        sides, calls = (own.smallest, own.largest), (own.fewest_calls, own.most_calls)
        drawing = random_drawing(rng, sides, calls, own.spacing)
        pair = [list(drawing.given), list(drawing.made)]
        return {"pairs": [pair], "program": drawing.program.text}

    def tasks(self, split: Split) -> Sequence[Mapping[str, Any]] | None:
        """Return the only task, if there is one."""
        return None if self._only is None else [self._only]

    def canonical(self, data: Mapping[str, Any]) -> str:
        """Return the pairs: drawings that look alike are one problem, whatever drew them."""
        return json.dumps(data["pairs"])

    def reset(self, task: Task) -> DrawingState:
        """Return the pairs, before any program."""
        pairs, tests = (_pairs(task.data.get(name, [])) for name in ("pairs", "tests"))
        return DrawingState(pairs=pairs, tests=tests, author=task.data.get("program", ""))

    def observe(self, state: DrawingState, role: str) -> Observation:
        """Return all pairs as text."""
        spacing = self.config.spacing
        texts = [
            f"from\n{grid_text(given, spacing)}\nto\n{grid_text(target, spacing)}"
            for given, target in state.pairs
        ]
        return Observation(text="\n".join(texts), legal_actions=())

    def step(
        self, state: DrawingState, role: str, action: str, noise: np.random.Generator
    ) -> Step[DrawingState]:
        """Run the program on the first grid of every pair, and of the test pairs by itself.

        Raises:
            IllegalActionError: if the text begins with no call, or is too long.
            EnvError: if a program was run before.
        """
        if state.made is not None:
            raise EnvError("arc-draw: the program was run: reset the env")
        after = self._test(self._run(state, action), action)
        rewards = {"pixels": _share(after), "exact": self.score(after)}
        info = {"failure": after.failure} if after.failure else {}
        return Step(state=after, rewards=rewards, terminated=True, truncated=False, info=info)

    def _run(self, state: DrawingState, action: str) -> DrawingState:
        """Return the state after a program; the test pairs have no part in whether it fails."""
        try:
            made = self._made(action, state.given)
        except ProgramFailure as failure:
            none = failure.failure == "syntax" and beginning(action, state.given) is None
            if none or failure.failure == "length":
                raise IllegalActionError(f"no program: {failure}") from None
            return replace(state, made=(), failure=str(failure))
        return replace(state, made=made)

    def _test(self, state: DrawingState, action: str) -> DrawingState:
        """Return the state after a program, with what it makes of the test pairs if it can."""
        if not state.made or not state.tests:
            return state
        return replace(state, tested=self.drawn(action, [given for given, _ in state.tests]))

    def drawn(self, program: str, grids: Sequence[Grid]) -> tuple[Grid, ...]:
        """Return what a program makes of grids; nothing if it fails on one of them."""
        try:
            return self._made(program, grids)
        except ProgramFailure:
            return ()

    def _made(self, action: str, grids: Sequence[Grid]) -> tuple[Grid, ...]:
        if self.config.runner == "sandbox":
            return self._python.run(action, grids)
        return tuple(run_program(action, grid) for grid in grids)

    def score(self, state: DrawingState) -> float:
        """Return 1 if all grids are right, otherwise 0."""
        return float(state.made == tuple(target for _, target in state.pairs))

    def measures(self, state: DrawingState) -> dict[str, float]:
        """Return the share of right cells, whether the program failed, and the test of a file."""
        found = {"pixels": _share(state), "fails": float(bool(state.failure))}
        if state.tests:
            found["test_exact"] = float(state.tested == tuple(target for _, target in state.tests))
        return found

    async def score_batch(
        self, episodes: Sequence[Episode], iterations: int
    ) -> BatchRewards | None:
        """Return `shared` of all programs, if it is asked for; None where the sandbox fails.

        Raises:
            SandboxError: if the sandbox fails for each program.
        """
        if not self.config.sharing:
            return None
        rewards: list[dict[str, float] | None] = [None for _ in episodes]
        problems: dict[str, dict[int, list[bool]]] = {}
        failures: list[SandboxError] = []
        for place, episode in enumerate(episodes):
            try:
                right = self.right_cells(episode)
            except SandboxError as error:
                failures.append(error)
                continue
            problems.setdefault(self.canonical(episode.task.data), {})[place] = right
        if failures and len(failures) == len(episodes):
            raise failures[-1]
        for cells in problems.values():
            found = shared_rewards(np.array(list(cells.values()))).tolist()
            for place, shared in zip(cells, found, strict=True):
                rewards[place] = {"shared": shared}
        return BatchRewards(rewards=tuple(rewards))

    def right_cells(self, episode: Episode) -> list[bool]:
        """Return which cells of all targets an episode's program has right."""
        state = self.reset(episode.task)
        action = next((each.action for each in reversed(episode.turns) if each.action), None)
        made = () if action is None else self.drawn(action, state.given)
        return [cell for cells in _right(replace(state, made=made)) for cell in cells]

    def relabel(self, task: Task, actions: Sequence[str]) -> Relabelled | None:
        """Return the task whose targets are what the program made, with its useful calls alone.

        Of a program that fails these are the calls before the line that failed (`relabel_failed`).
        """
        state, program = self.reset(task), actions[0]
        given = state.given
        try:
            made = self._made(program, given)
        except ProgramFailure:
            begun = beginning(program, given) if self.config.relabel_failed else None
            if begun is None:
                return None
            program, made = begun.text, tuple(execute(begun, grid) for grid in given)
        if list(made) == given:
            return None
        with suppress(ProgramFailure):  # all of Python cannot be read
            program = pruned(parse_program(program), given).text
        pairs = [[list(one), list(after)] for one, after in zip(given, made, strict=True)]
        return Relabelled(
            data={"pairs": pairs, "program": program},
            actions=(program,),
            closeness=_share(replace(state, made=made)),
        )

    def random_action(self, state: DrawingState, role: str, rng: np.random.Generator) -> str:
        """Return a random program of the generator for the first pair's grid."""
        given, _ = state.pairs[0]
        calls = (self.config.fewest_calls, self.config.most_calls)
        shape = (len(given), len(given[0]))
        return random_program(rng, shape, calls, self.config.spacing).text

    def baselines(self) -> Mapping[str, Baseline]:
        """Return random programs, and the one that drew or paints the first target."""
        several = self._only is not None and len(self._only["pairs"]) > 1
        name = "painter" if several else "optimal"
        return {
            **super().baselines(),
            name: lambda state, rng: state.author or self._paint(state, rng),
        }

    def _paint(self, state: DrawingState, rng: np.random.Generator) -> str:
        given, target = state.pairs[0]
        return painted(given, target, self.config.spacing)

    def render(self, state: DrawingState) -> str:
        """Return the grids of the pairs, and those that the program made."""
        shown = [grid for pair in state.pairs for grid in pair]
        return "\n\n".join("\n".join(grid) for grid in (*shown, *(state.made or ())))


def _empty(target: Grid) -> list[str]:
    return ["0" * len(target[0])] * len(target)


def _pairs(data: Sequence[Sequence[Sequence[str]]]) -> tuple[Pair, ...]:
    return tuple((tuple(given), tuple(target)) for given, target in data)


def _share(state: DrawingState) -> float:
    """Return the share of cells that are right, in the mean over pairs."""
    shares = [sum(cells) / len(cells) for cells in _right(state)]
    return sum(shares) / len(shares)


def _right(state: DrawingState) -> list[list[bool]]:
    """Return which cells of each target are right: none of a grid of another shape."""
    found: list[list[bool]] = []
    for number, (_, target) in enumerate(state.pairs):
        wanted = "".join(target)
        if state.made and _shape(state.made[number]) == _shape(target):
            made = "".join(state.made[number])
            found.append([one == other for one, other in zip(made, wanted, strict=True)])
        else:
            found.append([False] * len(wanted))
    return found


def _shape(grid: Grid) -> tuple[int, int]:
    return len(grid), len(grid[0])
