"""The envs of `benchmarks/untuned.py`: small worlds as a user writes them in an afternoon.

Nothing in them is for the model's convenience: no description of the state, no shaped reward, no
helpful order of tasks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

import turnwise as tw
from turnwise.errors import EnvError, IllegalActionError


def check(action, legal, over=False):
    """Refuse an action that is not legal, or that comes after the end."""
    if over:
        raise EnvError("the episode is over")
    if action not in legal:
        raise IllegalActionError(f"{action} is none of {', '.join(legal)}")


@dataclass(frozen=True)
class Secret:
    number: int
    tries: int = 0
    answer: str = ""


class Guess(tw.Env[Secret]):
    """Guess a number from 1 to 16 in four tries; each is answered with higher or lower."""

    name = "guess"
    components = {"right": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {"number": int(rng.integers(1, 17)), "seed": int(rng.integers(2**31))}

    def reset(self, task):
        return Secret(task.data["number"])

    def observe(self, state, role):
        legal = tuple(str(n) for n in range(1, 17))
        return tw.Observation(text=state.answer or "a number from 1 to 16", legal_actions=legal)

    def state_key(self, state, role):
        return f"{state.number} {state.tries} {state.answer}"

    def step(self, state, role, action, noise):
        over = state.answer == "right" or state.tries == 4
        check(action, self.observe(state, role).legal_actions, over)
        guess, tries = int(action), state.tries + 1
        answer = "right" if guess == state.number else "higher" if guess < state.number else "lower"
        right = answer == "right"
        return tw.Step(state=replace(state, tries=tries, answer=answer),
                       rewards={"right": float(right)}, terminated=right or tries == 4,
                       truncated=False)  # fmt: skip

    def score(self, state):
        return float(state.answer == "right")


@dataclass(frozen=True)
class Heap:
    sticks: int
    result: str = ""


class Nim(tw.Env[Heap]):
    """Take one to three sticks in turn with an opponent who plays at random; the last one wins."""

    name = "nim"
    components = {"won": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {"sticks": int(rng.integers(5, 12)), "seed": int(rng.integers(2**31))}

    def reset(self, task):
        return Heap(task.data["sticks"])

    def observe(self, state, role):
        legal = ("1", "2", "3")[: max(1, state.sticks)]
        return tw.Observation(text=f"{state.sticks} sticks", legal_actions=legal)

    def step(self, state, role, action, noise):
        check(action, self.observe(state, role).legal_actions)
        left = state.sticks - int(action)
        result = "won" if left <= 0 else ""
        if not result:
            left -= int(noise.integers(1, min(3, left) + 1))
            result = "lost" if left <= 0 else ""
        rewards = {"won": {"won": 1.0, "lost": -1.0, "": 0.0}[result]}
        return tw.Step(
            state=Heap(left, result), rewards=rewards, terminated=bool(result), truncated=False
        )

    def score(self, state):
        return float(state.result == "won")


@dataclass(frozen=True)
class Board:
    cells: str
    result: str = ""


class Grid(tw.Env[Board]):
    """A board game against an opponent who plays at random; a draw is half a win."""

    components = {"result": "agent"}  # noqa: RUF012
    width: int
    height: int
    row: int

    def generate(self, rng):
        return {"seed": int(rng.integers(2**31)), "second": bool(rng.integers(2))}

    def reset(self, task):
        board = Board("." * (self.width * self.height))
        if task.data["second"]:
            rng = np.random.default_rng(task.data["seed"])
            board = self._played(board, str(rng.choice(self.moves(board))), "o")
        return board

    def moves(self, board):
        raise NotImplementedError

    def place(self, board, move):
        raise NotImplementedError

    def lines(self, board):
        rows = [board.cells[r * self.width : (r + 1) * self.width] for r in range(self.height)]
        return "\n".join(" ".join(row) for row in rows)

    def observe(self, state, role):
        return tw.Observation(
            text=self.lines(state), legal_actions=tuple(self.moves(state)) or ("1",)
        )

    def _played(self, board, move, mark):
        at = self.place(board, move)
        cells = board.cells[:at] + mark + board.cells[at + 1 :]
        result = "draw" if "." not in cells else ""
        return Board(cells, mark if self._wins(cells, mark) else result)

    def _wins(self, cells, mark):
        w, h, n = self.width, self.height, self.row
        for r in range(h):
            for c in range(w):
                for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
                    last_r, last_c = r + dr * (n - 1), c + dc * (n - 1)
                    if (
                        0 <= last_r < h
                        and 0 <= last_c < w
                        and all(cells[(r + i * dr) * w + c + i * dc] == mark for i in range(n))
                    ):
                        return True
        return False

    def step(self, state, role, action, noise):
        check(action, self.moves(state))
        after = self._played(state, action, "x")
        if not after.result:
            legal = self.moves(after)
            after = self._played(after, legal[noise.integers(len(legal))], "o")
        reward = {"x": 1.0, "o": -1.0}.get(after.result, 0.0)
        return tw.Step(state=after, rewards={"result": reward}, terminated=bool(after.result),
                       truncated=False)  # fmt: skip

    def score(self, state):
        return {"x": 1.0, "draw": 0.5}.get(state.result, 0.0)


class TicTacToe(Grid):
    """Three in a row."""

    name = "tic-tac-toe"
    width = height = row = 3

    def moves(self, board):
        return [str(i + 1) for i, cell in enumerate(board.cells) if cell == "."]

    def place(self, board, move):
        return int(move) - 1


class ConnectFour(Grid):
    """Four in a row; stones fall to the bottom of their column."""

    name = "connect-four"
    width, height, row = 7, 6, 4

    def moves(self, board):
        return [str(c + 1) for c in range(self.width) if board.cells[c] == "."]

    def place(self, board, move):
        column = int(move) - 1
        free = [r for r in range(self.height) if board.cells[r * self.width + column] == "."]
        return max(free) * self.width + column


@dataclass(frozen=True)
class Choice:
    data: dict[str, str | int]
    right: float = 0.0


SHAPES, COLOURS = ("circle", "square", "star"), ("red", "green", "blue", "black")


class Bandit(tw.Env[Choice]):
    """Pull one of five arms; what is shown decides which one pays with 0.9, the others pay 0.2."""

    name = "bandit"
    components = {"paid": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {
            "shape": str(rng.choice(SHAPES)),
            "colour": str(rng.choice(COLOURS)),
            "seed": int(rng.integers(2**31)),
        }

    def reset(self, task):
        return Choice(task.data)

    def best(self, data):
        return str((3 * SHAPES.index(data["shape"]) + 2 * COLOURS.index(data["colour"])) % 5 + 1)

    def observe(self, state, role):
        text = f"{state.data['colour']} {state.data['shape']}"
        return tw.Observation(text=text, legal_actions=("1", "2", "3", "4", "5"))

    def step(self, state, role, action, noise):
        check(action, self.observe(state, role).legal_actions)
        chance = 0.9 if action == self.best(state.data) else 0.2
        paid = float(noise.random() < chance)
        return tw.Step(state=replace(state, right=paid), rewards={"paid": paid}, terminated=True,
                       truncated=False)  # fmt: skip

    def score(self, state):
        return state.right


@dataclass(frozen=True)
class Shown:
    letter: str
    turn: int = 0
    right: bool = False


class Memory(tw.Env[Shown]):
    """A letter is shown first; after three turns of waiting it must be named."""

    name = "memory"
    components = {"right": "agent"}  # noqa: RUF012
    letters = tuple("abcdef")

    def generate(self, rng):
        return {"letter": str(rng.choice(self.letters)), "seed": int(rng.integers(2**31))}

    def reset(self, task):
        return Shown(task.data["letter"])

    def observe(self, state, role):
        if state.turn == 0:
            return tw.Observation(text=f"remember {state.letter}", legal_actions=("wait",))
        if state.turn < 3:
            return tw.Observation(text="wait", legal_actions=("wait",))
        return tw.Observation(text="which letter was it ?", legal_actions=self.letters)

    def state_key(self, state, role):
        return f"{state.letter} {state.turn}"

    def step(self, state, role, action, noise):
        over = state.turn == 4
        check(action, self.observe(state, role).legal_actions, over)
        right, last = action == state.letter, state.turn == 3
        return tw.Step(
            state=replace(state, turn=state.turn + 1, right=right and last),
            rewards={"right": float(right and last)},
            terminated=last,
            truncated=False,
        )

    def score(self, state):
        return float(state.right)


@dataclass(frozen=True)
class Line:
    symbols: tuple[str, ...]
    said: tuple[str, ...] = ()


class Sort(tw.Env[Line]):
    """Say four shown digits in ascending order, one in each turn; a right place pays a quarter."""

    name = "sort"
    components = {"places": "agent"}  # noqa: RUF012

    def generate(self, rng):
        return {"digits": rng.integers(1, 7, 4).tolist(), "seed": int(rng.integers(2**31))}

    def reset(self, task):
        return Line(tuple(map(str, task.data["digits"])))

    def observe(self, state, role):
        text = f"sort {' '.join(state.symbols)} said {' '.join(state.said) or 'nothing'}"
        return tw.Observation(text=text, legal_actions=tuple("123456"))

    def step(self, state, role, action, noise):
        over = len(state.said) == 4
        check(action, self.observe(state, role).legal_actions, over)
        said = (*state.said, action)
        right = sorted(state.symbols)[len(said) - 1] == action
        return tw.Step(state=replace(state, said=said), rewards={"places": right / 4},
                       terminated=len(said) == 4, truncated=False)  # fmt: skip

    def score(self, state):
        pairs = zip(sorted(state.symbols), state.said, strict=False)
        return sum(a == b for a, b in pairs) / 4


@dataclass(frozen=True)
class Room:
    cells: str  # rows of the grid without line ends
    at: int
    key: bool = False
    steps: int = 0
    out: bool = False


MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class KeyAndDoor(tw.Env[Room]):
    """Fetch the key, then leave by the door, in a room of 4 x 4 cells and 16 steps."""

    name = "key-and-door"
    components = {"out": "agent"}  # noqa: RUF012
    side, most = 4, 16

    def generate(self, rng):
        places = rng.choice(self.side**2, 3, replace=False)
        return {"places": places.tolist(), "seed": int(rng.integers(2**31))}

    def reset(self, task):
        cells = ["."] * self.side**2
        at, key, door = task.data["places"]
        cells[key], cells[door] = "k", "d"
        return Room("".join(cells), at)

    def observe(self, state, role):
        cells = [*state.cells]
        cells[state.at] = "@"
        rows = [" ".join(cells[r : r + self.side]) for r in range(0, len(cells), self.side)]
        has = "with the key" if state.key else "without the key"
        return tw.Observation(text="\n".join([*rows, has]), legal_actions=tuple(MOVES))

    def step(self, state, role, action, noise):
        over = state.out or state.steps == self.most
        check(action, self.observe(state, role).legal_actions, over)
        row, column = divmod(state.at, self.side)
        down, right = MOVES[action]
        row = min(max(row + down, 0), self.side - 1)
        column = min(max(column + right, 0), self.side - 1)
        at = row * self.side + column
        key = state.key or state.cells[at] == "k"
        cells = state.cells.replace("k", ".") if key else state.cells
        out = key and cells[at] == "d"
        after = Room(cells, at, key, state.steps + 1, out)
        return tw.Step(state=after, rewards={"out": float(out)}, terminated=out,
                       truncated=not out and after.steps == self.most)  # fmt: skip

    def score(self, state):
        return float(state.out)


class Maze(tw.Env[Room]):
    """Find the exit of a maze of 5 x 5 cells in 20 steps, seeing only the cells beside oneself."""

    name = "maze"
    components = {"out": "agent"}  # noqa: RUF012
    side, most = 5, 20

    def generate(self, rng):
        while True:
            walls = rng.random(self.side**2) < 0.3
            start, goal = rng.choice(self.side**2, 2, replace=False).tolist()
            walls[[start, goal]] = False
            far = self.distances(walls, goal).get(start)
            if far is not None and 2 <= far <= 8:
                cells = ["#" if wall else "." for wall in walls]
                cells[goal] = "g"
                return {"cells": "".join(cells), "at": start, "seed": int(rng.integers(2**31))}

    def distances(self, walls, goal):
        found, queue = {goal: 0}, deque([goal])
        while queue:
            here = queue.popleft()
            for move in MOVES:
                there = self.moved(here, move)
                if there not in found and not walls[there]:
                    found[there] = found[here] + 1
                    queue.append(there)
        return found

    def moved(self, at, move):
        row, column = divmod(at, self.side)
        down, right = MOVES[move]
        if not (0 <= row + down < self.side and 0 <= column + right < self.side):
            return at
        return (row + down) * self.side + column + right

    def reset(self, task):
        return Room(task.data["cells"], task.data["at"])

    def seen(self, state, move):
        there = self.moved(state.at, move)
        cell = "#" if there == state.at else state.cells[there]
        return {"#": "wall", ".": "free", "g": "exit"}[cell]

    def observe(self, state, role):
        text = " ".join(f"{move} {self.seen(state, move)}" for move in MOVES)
        return tw.Observation(text=text, legal_actions=tuple(MOVES))

    def state_key(self, state, role):
        return f"{state.cells} {state.at}"

    def step(self, state, role, action, noise):
        over = state.out or state.steps == self.most
        check(action, self.observe(state, role).legal_actions, over)
        there = self.moved(state.at, action)
        at = state.at if state.cells[there] == "#" else there
        out = state.cells[at] == "g"
        after = Room(state.cells, at, False, state.steps + 1, out)
        return tw.Step(state=after, rewards={"out": float(out)}, terminated=out,
                       truncated=not out and after.steps == self.most)  # fmt: skip

    def score(self, state):
        return float(state.out)
