"""The options of a search, `SearchConfig`, and of the prompts and the endpoint that it uses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from turnwise.engines.remote_config import RemoteConfig
from turnwise.settings import Settings

PromptKind = Literal["props", "props+"]
HistoryRule = Literal["all", "best"]
Control = Literal["none", "blank", "shuffled"]
SHOWN = 10
"""How many of the best tries, and of the most recent ones, a short prompt shows."""


class ShownConfig(Settings):
    """Which tries a prompt shows."""

    rule: HistoryRule = "all"
    """`all` tries, the oldest first, or the `best` ones and the most recent ones, which keeps
    prompts short."""
    best: int | None = Field(default=None, ge=0)
    """How many of the best tries `best` shows; None is 10."""
    recent: int | None = Field(default=None, ge=0)
    """How many of the most recent other tries `best` shows; None is 10."""

    @model_validator(mode="after")
    def _check(self) -> ShownConfig:
        given = {"best": self.best, "recent": self.recent}
        names = [name for name, number in given.items() if number is not None]
        if self.rule == "all" and names:
            raise ValueError(
                f"rule = 'all' shows every try, so {' and '.join(names)} would be ignored: set "
                "rule = 'best', or leave them out"
            )
        return self

    @property
    def most(self) -> tuple[int, int]:
        """How many of the best and of the most recent tries `best` shows."""
        return (
            SHOWN if self.best is None else self.best,
            SHOWN if self.recent is None else self.recent,
        )


class PromptConfig(Settings):
    """How a model is asked for the next parameters."""

    kind: PromptKind = "props"
    """`props` says nothing of the task but its scores; `props+` describes the env and shows an
    episode of each policy that is a table."""
    optimum: bool = True
    """Whether the prompt says what about the best score is, where the task knows it."""
    hints: str = Field(default="", max_length=4000)
    """Further advice, added to the prompt as it is."""
    steps: int = Field(default=30, ge=1)
    """The most steps of an episode that `props+` shows."""
    retries: int = Field(default=5, ge=0)
    """Replies that are asked for again, in one iteration, after one that cannot be used."""


class PriceConfig(Settings):
    """The price of an endpoint's tokens, in any currency."""

    prompt: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """For a million tokens of prompts."""
    completion: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """For a million tokens of replies."""


class EndpointConfig(RemoteConfig):
    """The endpoint that is asked, and how."""

    max_concurrent: int = Field(default=1, ge=1, le=1)
    """One request at a time: each prompt shows the score of the policy before."""
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """The sampling temperature."""
    max_tokens: int = Field(default=1024, ge=16)
    """The most tokens of a reply."""


class BudgetConfig(Settings):
    """How many episodes a search plays. The defaults are those of arXiv:2511.21928."""

    iterations: int = Field(default=400, ge=1)
    """Evaluations after the warm-up, those of policies that are played again included."""
    episodes: int = Field(default=20, ge=1)
    """Episodes of an evaluation."""
    warmup: int = Field(default=20, ge=0)
    """Random policies, of one episode each, that a model is shown before its first try."""
    recheck: int = Field(default=10, ge=0)
    """Every so many evaluations one of the best policies is played again, which counts as an
    iteration; 0 is never, as in the paper."""
    best: int = Field(default=3, ge=1)
    """How many of the best policies are played again, those with the fewest episodes first; at the
    end, each of them once more."""
    fresh: int = Field(default=200, ge=2)
    """Fresh episodes, beyond the budget, on which the returned policy is scored."""
    lost: int = Field(default=10, ge=1)
    """The search stops after so many iterations in a row in which the model gave no policy."""

    @model_validator(mode="after")
    def _check(self) -> BudgetConfig:
        if self.recheck == 1:
            raise ValueError("recheck = 1 would leave no iteration for new policies: set 0 or 2")
        if self.iterations < self.last_rechecks + 1:
            raise ValueError(
                f"iterations = {self.iterations} leaves no new policy, as the last best = "
                f"{self.best} are for policies that are played again: raise iterations, or set "
                "recheck = 0"
            )
        return self

    @property
    def last_rechecks(self) -> int:
        """The evaluations at the end in which the best policies are played again."""
        return self.best if self.recheck else 0

    def plays_again(self, slot: int, total: int) -> bool:
        """Whether one of the best policies is played again in evaluation `slot`, from 0.

        Example:
            >>> [slot for slot in range(14) if BudgetConfig(recheck=5).plays_again(slot, 14)]
            [4, 9, 11, 12, 13]
        """
        if not self.recheck:
            return False
        return slot >= total - self.best or slot % self.recheck == self.recheck - 1


class SearchConfig(Settings):
    """A search: who proposes, with which prompts, and for how long.

    Example:
        >>> SearchConfig(task="cart-pole", method="cem").budget.iterations
        400
    """

    task: str
    """A task of the table, or a Gymnasium id."""
    method: str | None = None
    """The method that proposes; None is a model."""
    endpoint: EndpointConfig | None = None
    """The endpoint whose model proposes."""
    run: str | None = None
    """The run folder whose policy proposes."""
    prompt: PromptConfig = PromptConfig()
    """How a model is asked."""
    shown: ShownConfig = ShownConfig()
    """Which tries a prompt shows."""
    budget: BudgetConfig = BudgetConfig()
    """How many episodes are played."""
    price: PriceConfig = PriceConfig()
    """The price of tokens."""
    control: Control = "none"
    """What a run is shown in place of the history, to see whether it uses it: `blank`, no try, or
    `shuffled`, the scores in random order."""
    start: bool = False
    """Whether the policy of a run has the weights that its training by reward began with."""
    relabel: int | None = Field(default=None, ge=0)
    """Numbers states and actions anew by a random permutation of this seed, for tables: a searcher
    that knows the task by heart is at a loss then."""
    seed: int = Field(default=0, ge=0)
    """Seeds everything."""

    @model_validator(mode="after")
    def _check(self) -> SearchConfig:
        given = [n for n in ("method", "endpoint", "run") if getattr(self, n) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "none"
            raise ValueError(f"a search needs one of method, endpoint and run; given: {said}")
        idle = {"method": ("prompt", "shown", "price"), "run": ("prompt", "shown", "price")}
        for name in idle.get(given[0], ()):
            if name in self.model_fields_set and getattr(self, name) != type(getattr(self, name))():
                raise ValueError(
                    f"{name} applies to an endpoint, but {given[0]} = "
                    f"{getattr(self, given[0])!r}: leave {name} out"
                )
        if self.relabel is not None and self.prompt.kind == "props+":
            raise ValueError(
                "relabel numbers states anew, and prompt.kind = 'props+' describes them as they "
                "are: set prompt.kind = 'props', or leave relabel out"
            )
        of_runs = {"control": self.control != "none", "start": self.start}
        for name in (name for name, is_set in of_runs.items() if is_set and self.run is None):
            raise ValueError(
                f"{name} = {getattr(self, name)!r} applies to a run, but {given[0]} is given: "
                f"leave {name} out"
            )
        return self

    @property
    def proposer(self) -> str:
        """Who proposes, as a name, and what is changed for it."""
        relabelled = "" if self.relabel is None else f", relabelled by {self.relabel}"
        return f"{self._who}{relabelled}"

    @property
    def _who(self) -> str:
        if self.method is not None:
            return self.method
        if self.endpoint is not None:
            return self.endpoint.model
        control = "" if self.control == "none" else f", {self.control} history"
        return f"run {self.run}{' at its start' if self.start else ''}{control}"
