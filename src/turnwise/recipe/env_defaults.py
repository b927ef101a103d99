"""The defaults of `turnwise.train` in an env: a recipe that fits the env and the model.

Provides `env_recipe`. What depends on the env is measured by a few games without a model
(`envs.survey`). A model made on the spot is first taught the format on states of random play, and
every update has some of these rows. The system message of a pretrained model says how to answer,
and its updates have rows of uniform actions alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from turnwise.envs import ToolEnv
from turnwise.envs.survey import Survey, survey
from turnwise.errors import ConfigError
from turnwise.policies import is_nano, nano_preset
from turnwise.recipe.env_credit import TURNS, TURNS_STD, EnvCredit
from turnwise.recipe.env_sizes import GAME_TURNS, MOST_ROWS, START_AND_DECODING, EnvSizes
from turnwise.recipe.fit import setting_at
from turnwise.recipe.history import (
    TOKENS_PER_WORD,
    TURN_TOKENS,
    History,
    choose_history,
    lists_actions,
    smallest_context,
)
from turnwise.recipe.reasons import dotted_keys
from turnwise.recipe.schema import Recipe, make_recipe
from turnwise.recipe.system_message import system_message
from turnwise.tasks import GeneratedTasks
from turnwise.trainers.config import GrpoConfig

Data = dict[str, Any]
T = TypeVar("T")
SURVEYED = 100
"""Tasks on which the games without a model are played."""
ALL_READABLE = 1.0
"""Share of readable replies at which the warm-up may end. A game fails by one reply: at 0.98 one in
thirteen games of four turns does, and the policy begins below the random play that it imitates."""
READABLE_GAMES = 0.9
"""A warm-up may take up to half of the time while a seat's replies can all be read in a smaller
share of random games."""
WARM_STEPS, WARM_RATE, WARM_RISE, WARM_COOLDOWN = 600, 4e-3, 20, 100
"""Stopped at its full rate, the warm-up leaves whatever the last steps did: one of six actions at
0.24, and one reply in a hundred that cannot be read."""
ACTION_BARRIER = 0.2
"""The weight of uniform actions in the SFT mix at the start; it falls to 0."""
BARRIER_ROWS = 32
"""The rows of uniform actions in an update of a pretrained model."""
ACTION_FLOOR = 0.5
"""The share of its first frequency below which an action makes uniform actions weigh more."""
LONGEST = 1000
"""The most turns of an episode where a mean random one has more: one that never ends would take all
of the time."""
LONG = 6
"""The turns of a mean random game above which games are long. A trained model may play longer."""
EXPLORED = ((1e-3, 10_000), (1e-2, 1_000), (0.1, 100))
"""The steps of random play before the run where one takes less than so many seconds. They are few
classes, so that equal calls give equal runs."""
INVALID_LIMIT = 3
"""The replies in a row that cannot be read and end a long game: more take long and teach little."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvRecipe:
    """The plain values of a recipe, and the reasons of those that were chosen for the env.

    `reasons` has dotted keys, such as `agents.player.history`.
    """

    data: Data
    reasons: Mapping[str, str]


def env_recipe(plain: Data, settings: Mapping[str, Any]) -> EnvRecipe:
    """Return the plain values of a recipe, completed by the defaults that fit its env and model.

    A nano model's first weights have a standard deviation of 1 / sqrt(width): with the usual 0.02
    its words begin too much alike to learn to copy one of the legal words.

    Args:
        plain: what was given (name, env, policy, credit) and TRL's defaults.
        settings: what the user replaces; looked at, not applied.

    Raises:
        ConfigError: if the settings name another trainer than grpo.
    """
    kind = setting_at(settings, "trainer.kind")
    if kind not in (None, "grpo"):
        raise ConfigError(
            f"trainer.kind = {kind!r}: the defaults for an env are for grpo: write a recipe"
        )
    # what settings replace is told of the recipe itself
    draft = make_recipe(_widest(plain, settings), settings, lambda text: None)
    draft.env.look("training", draft.seed)
    assert isinstance(draft.trainer, GrpoConfig), "another one was refused"
    env = draft.env.make("training")
    tasks = GeneratedTasks(env, "train", draft.seed).take(SURVEYED)
    nano = all(is_nano(policy.model) for policy in draft.weights.values())
    given = set(dotted_keys(settings))
    sized = given | set(dotted_keys(plain["policies"]))
    found = _Found(
        draft=draft,
        trainer=draft.trainer,
        shown=survey(env, tasks, draft.seed),
        tools=isinstance(env.unwrapped, ToolEnv),
        given=given,
        seats=len(env.seats),
        nano=nano,
        context=smallest_context(draft.weights.values()),
        can_grow=nano and not any(key.endswith("nano.context") for key in sized),
    )
    add = found.for_nano(plain["policies"]) if nano else found.for_real()
    if draft.evaluation.validation != "exact":
        own = plain.get("evaluation", {}) | START_AND_DECODING
        add["evaluation"] = found.sizes.validation(add["trainer"], found.because) if nano else own
    add["credit"] = {**plain["credit"], **add.get("credit", {}), **found.invalid()}
    add["env"] = {**plain["env"], **found.cut()}
    if found.restarts:
        add["curriculum"] = found.curriculum()
    elif draft.curriculum.kind == "restarts" and not draft.curriculum.share:
        add["curriculum"] = {"kind": "restarts"}  # its share was given, and says the same
    return EnvRecipe(data={**plain, **add}, reasons=found.reasons)


def _widest(plain: Data, settings: Mapping[str, Any]) -> Data:
    """Return a recipe to which the user's settings of anything that may be chosen apply."""
    wide = {**plain, "credit": {**plain["credit"], "scheme": TURNS, "std": TURNS_STD}}
    given = set(dotted_keys(settings))
    if any(key.startswith("curriculum.") for key in given):
        wide["curriculum"] = {"kind": "restarts"}
    if any(key.startswith(("sft_mix.action_floor", "sft_mix.final")) for key in given):
        wide["sft_mix"] = {"spans": {"think": 1.0, "answer": 1.0, "action": ACTION_BARRIER}}
    if "warmup.outcomes" in given:
        wide["warmup"] = {"states": "play"}
    asked = {"invalid_reply": "continue"}
    limited = {role for role in plain["agents"] if f"agents.{role}.invalid_limit" in given}
    agents = plain["agents"].items()
    return wide | {"agents": {r: {**a, **(asked if r in limited else {})} for r, a in agents}}


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The inputs of the defaults: the recipe as far as it is known, and the surveyed games.

    `given` are the dotted keys of the user's settings. `context` is that of the smallest model;
    None where none is known. It `can_grow` where models are made on the spot, and it was not given.
    """

    draft: Recipe
    trainer: GrpoConfig
    shown: Survey
    tools: bool
    given: Collection[str]
    seats: int
    nano: bool
    context: int | None
    can_grow: bool
    reasons: dict[str, str] = field(default_factory=dict)

    def because(self, key: str, value: T, reason: str) -> T:
        """Return a value, and keep the reason for it."""
        self.reasons[key] = reason
        return value

    def invalid(self) -> Data:
        """Return what an invalid reply earns, unless the user weighs it: less than any other."""
        if "invalid" in self.draft.credit.rewards:
            return {}
        reason = "a reply that cannot be read is worth less than any other"
        return {"invalid_below_worst": self.because("credit.invalid_below_worst", True, reason)}

    def cut(self) -> Data:
        """Return the cap on turns, where random play hardly ends within a large one."""
        length = self.shown.groups.length
        if length <= LONGEST or "env.max_turns" in self.given:
            return {}
        reason = f"a random episode has about {length:.3g} turns, of at most {self.shown.cap}"
        return {"max_turns": self.because("env.max_turns", LONGEST, reason)}

    @property
    def is_long(self) -> bool:
        """Whether games have many turns."""
        return self.shown.groups.length > LONG

    @property
    def of_credit(self) -> EnvCredit:
        """How turns are compared."""
        return EnvCredit(groups=self.shown.groups, tools=self.tools)

    @property
    def sizes(self) -> EnvSizes:
        """How much is played and shown."""
        return EnvSizes(
            shown=self.shown,
            trainer=self.trainer,
            given=self.given,
            history=self.history.shown,
            seats=self.seats,
            restarts=self.restarts,
            segment=self.of_credit.segment,
        )

    @property
    def restarts(self) -> bool:
        """Whether episodes also begin in states that earlier episodes reached."""
        wanted = self.draft.curriculum
        off = "curriculum.kind" in self.given and wanted.kind != "restarts"
        off = off or (wanted.kind == "restarts" and wanted.share == 0)
        return self.is_long and self.shown.groups.repeats and not (self.tools or off)

    def curriculum(self) -> Data:
        """Return the curriculum of long games."""
        reason = "games are long: they are also begun in states that were rarely visited"
        steps = next((steps for most, steps in EXPLORED if self.shown.groups.seconds < most), 0)
        steps = min(steps, GAME_TURNS * self.trainer.iterations)
        why = "random play is cheap" if steps else "random play takes long"
        return {
            "kind": self.because("curriculum.kind", "restarts", reason),
            "explore": self.because("curriculum.explore", steps, why),
        }

    def for_real(self) -> Data:
        """Return the settings of a pretrained model: a system message that says how to answer."""
        for role in self.draft.agents:
            self.because(f"agents.{role}.history", self.history.shown, self.history.reason)
        agents = {
            role: {"max_tokens": self._reply_tokens(role, agent.max_tokens), **self._seen_by(role)}
            | {"system": system_message(self.shown, agent, tools=self.tools)}
            for role, agent in self.draft.agents.items()
        }
        own: Data = {"agents": agents, "credit": self.of_credit.settings(self.because)}
        return own | self._uniform_actions()

    def _reply_tokens(self, role: str, most: int) -> int:
        """Return the most tokens of a reply, of which a known context holds two."""
        if self.context is None or most <= self.context // 2:
            return most
        reason = f"the context of the model has {self.context} tokens"
        return self.because(f"agents.{role}.max_tokens", self.context // 2, reason)

    def _uniform_actions(self) -> Data:
        """Return the SFT mix of a pretrained model: uniform actions, and nothing else of a reply.

        There is none where any text may be an answer, where tools are called, and where the rows
        are the user's.
        """
        if self.shown.free or self.tools or self._own_rows or not self._one_format:
            return {}
        why = "uniform actions keep the policy from being certain before it has learned"
        span = self.because("sft_mix.spans.action", ACTION_BARRIER, why)
        rows: Data = {"states": "play", "rows": BARRIER_ROWS, "spans": {"action": span}}
        return {"sft_mix": rows | self._fading_actions()}

    @property
    def _own_rows(self) -> bool:
        """Whether the rows of the SFT mix are the user's."""
        return self.draft.sft_mix is not None and self.draft.sft_mix.data != "demonstrations"

    @property
    def _one_format(self) -> bool:
        """Whether all roles of each policy have one reply format, whose parts spans can name."""
        agents = self.draft.agents.values()
        return len({(a.policy, a.reply) for a in agents}) == len({a.policy for a in agents})

    def _fading_actions(self) -> Data:
        """Return how the weight of uniform actions falls, and what makes it rise."""
        reason = "uniform actions are imitated less and less"
        return {
            "final": {"action": self.because("sft_mix.final.action", 0.0, reason)},
            "action_floor": ACTION_FLOOR,
        }

    def for_nano(self, policies: Mapping[str, Data]) -> Data:
        """Return what a model made on the spot gets: a warm-up, an SFT mix, and small steps."""
        draft = self.draft
        models = {name: p.nano or nano_preset(p.model) for name, p in draft.weights.items()}
        inits: dict[str, Data] = {}
        for name, each in models.items():
            inits[name] = {"init_std": round(each.hidden**-0.5, 2)}
            if self.history.context is not None:
                key, why = f"policies.{name}.nano.context", "prompts hold the whole past"
                inits[name]["context"] = self.because(key, self.history.context, why)
            inits[name] |= policies[name].get("nano") or {}
        assert self.context is not None, "nano models have one"
        thinks = all(agent.reply_format.thinks for agent in draft.agents.values())
        described = self.shown.described and thinks
        longest = self.shown.longest_reply()
        tokens = min(max(64, 2 * longest + TURN_TOKENS), self.context // 2)
        for role in draft.agents:
            self.because(f"agents.{role}.history", self.history.shown, self.history.reason)
            self.because(
                f"agents.{role}.max_tokens", tokens, f"the longest reply has {longest} words"
            )
        agents = {r: {"max_tokens": tokens, **self._seen_by(r)} for r in draft.agents}
        trainer = self.trainer
        play: Data = {}
        if draft.warmup is None or draft.warmup.data == "demonstrations":
            play["states"] = "play"
        shows_play = bool(play) and (draft.warmup is None or draft.warmup.states != "first")
        one_turn = self.shown.groups.length <= 1
        tells = shows_play and not (described or one_turn or self.tools or self.shown.first.raw)
        if tells:
            reason = "nothing describes the states: the model learns what follows from what"
            play["outcomes"] = self.because("warmup.outcomes", True, reason)
        return {
            "policies": {name: {**policies[name], "nano": inits[name]} for name in models},
            "agents": agents,
            "warmup": {
                "steps": WARM_STEPS,
                "batch_size": self._told_rows("warmup.batch_size", self.sizes.rows),
                "perception_tasks": self.sizes.perception_tasks,
                **({} if described else self._end_of_warmup(tells=tells)),
                "optimizer": {
                    "lr": WARM_RATE,
                    "schedule": "linear",
                    "warmup_steps": min(
                        WARM_RISE, draft.warmup.steps if draft.warmup else WARM_STEPS
                    ),
                },
                **play,
            },
            "sft_mix": self._sft_mix(described=described),
            "optimizer": {"lr": "auto", "schedule": "linear"},
            "trainer": {"iterations": trainer.iterations, **self.sizes.episodes(self.because)},
            "credit": self.of_credit.settings(self.because)
            | {"segments": {"answer": "return"} if described else {}},
        }

    def _told_rows(self, key: str, rows: int) -> int:
        """Return a number of rows, and keep the reason where it is below the most."""
        if rows < MOST_ROWS:
            self.because(key, rows, "rows are long, and a step has about as many tokens anywhere")
        return rows

    def _end_of_warmup(self, *, tells: bool) -> Data:
        """Return when a warm-up on states without descriptions ends."""
        end: Data = {"cooldown": WARM_COOLDOWN}
        if self.trainer.minutes is not None:
            own = self.shown.groups.own_length
            least = round(READABLE_GAMES ** (1 / max(own, 1.0)), 4)
            reason = f"a seat of a random episode has {own:.3g} turns in the mean"
            key = "required_accuracy"
            end[key] = self.because(f"warmup.{key}", least, reason)
        if tells:
            reason = "readable replies do not tell how well the model knows what follows"
            stop = self.because("warmup.stop_at_accuracy", "never", reason)
            return end | {"stop_at_accuracy": stop}
        return end | {"stop_at_accuracy": ALL_READABLE}

    def _sft_mix(self, *, described: bool) -> Data:
        """Return the SFT mix: descriptions and format always, uniform actions less and less.

        Rows of the user's are imitated whole, and always.
        """
        rows: Data = {"rows": self._told_rows("sft_mix.rows", min(2 * self.sizes.rows, MOST_ROWS))}
        if self._own_rows:
            return rows
        rows |= {"states": "play"}
        if not self._one_format:
            return rows
        spans = {"think": 5.0} if described else {}
        spans |= {"answer": 1.0, "action": ACTION_BARRIER}
        return rows | {"spans": spans} | self._fading_actions()

    def _seen_by(self, role: str) -> Data:
        """Return what a role's prompts show, and what becomes of a reply that cannot be read."""
        shown: Data = {"role": role, "history": self.history.shown}
        if lists_actions(self.shown) and not self.tools:
            reason = "the legal actions change from state to state"
            shown["show_legal"] = self.because(f"agents.{role}.show_legal", True, reason)
        computed = self.draft.evaluation.exact or self.draft.evaluation.validation == "exact"
        if self.is_long and not computed:
            reason = "games are long: one reply that cannot be read does not end them"
            rule = self.because(f"agents.{role}.invalid_reply", "continue", reason)
            why = "an episode ends after so many of them in a row"
            limit = self.because(f"agents.{role}.invalid_limit", INVALID_LIMIT, why)
            shown |= {"invalid_reply": rule, "invalid_limit": limit}
        return shown

    @cached_property
    def history(self) -> History:
        """How much of the past prompts hold, and the reason."""
        return choose_history(
            self.shown,
            tools=self.tools,
            context=self.context,
            can_grow=self.can_grow,
            per_word=1.0 if self.nano else TOKENS_PER_WORD,
        )
