"""The defaults of `turnwise.train` in an env: a recipe that fits the env and the model.

Provides `env_recipe`. What depends on the env is measured by a few games without a model
(`envs.survey`). A model made on the spot is first taught the format on states of random play and
rehearses it from then on; the system message of a real model says how to answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from turnwise.agents import AgentConfig
from turnwise.envs import ToolEnv
from turnwise.envs.survey import GROUP, Survey, survey
from turnwise.policies import is_nano, nano_preset
from turnwise.recipe.reasons import dotted_keys
from turnwise.recipe.schema import Recipe, make_recipe
from turnwise.tasks import GeneratedTasks

Data = dict[str, Any]
T = TypeVar("T")
SURVEYED = 100
"""Tasks on which the games without a model are played."""
TURN_TOKENS = 16
"""Tokens of a turn that are neither the observation's nor the reply's words: template and tags."""
ROOM = 2
"""The number of times that the longest game of random play must fit into a nano model's context for
prompts to hold the whole past. A trained model plays longer games than random play."""
ALL_READABLE = 1.0
"""Share of readable replies at which the warm-up may end. A game fails by one reply: at 0.98 one in
thirteen games of four turns does, and the policy begins below the random play that it imitates."""
WARM_STEPS, WARM_RATE, WARM_RISE, WARM_COOLDOWN = 600, 1e-3, 20, 100
"""Stopped at its full rate, the warm-up leaves whatever the last steps did: one of six actions at
0.24, and one reply in a hundred that cannot be read."""
NANO_MINIBATCHES = 4
ACTION_BARRIER = 0.2
"""The weight of uniform actions in the SFT mix at the start; it falls to 0."""
ACTION_FLOOR = 0.5
"""The share of its first frequency below which an action makes uniform actions weigh more."""
GAME_TURNS, GAME_TOKENS = 1024, 40_000
"""The turns that an iteration's episodes are to have together, by the survey's mean length, and
about the most tokens of their prompts and replies."""
FEWEST_EPISODES, MOST_EPISODES = 16, 128
TURNS, TURNS_STD = "gae", "batch_advantages"
"""The credit scheme of episodes of several turns."""
LEAST_ADVANTAGE = -5.0
KEYS_DECIDE, KEYS_HIDE = 0.3, 0.9
"""How much a turn's advantage counts on what followed in its own episode, where the key of a state
says all that decides the future, and where it does not."""
SHORT, DISCOUNT, LONGEST_DISCOUNT = 8, 0.95, 0.99
"""Up to `SHORT` turns a return is not discounted by more than `DISCOUNT` a turn."""
EVALUATION = {"decoding": "validated", "validate_start": True, "validation_tasks": 128}
"""A nano model starts near uniform play, whose most probable action is the same nearly everywhere:
played greedily it is worse than random play."""
LEAST_VALIDATIONS, LONG_VALIDATION = 5, 64
"""The fewest validations of a run, and the tasks of one where games are long."""
VALIDATED = 0.1
"""The episodes of validation as a share of those that are trained."""
LONG = 6
"""The turns of a mean random game above which games are long. A trained model may play longer."""
SEGMENT, KNOWN_SEGMENT = 16, 8
"""The turns after which a training episode is left where games are long: many short episodes from
many states tell more than few long ones, and are sampled side by side. They are shorter where the
observation tells the state, so that what a state is worth is known from other episodes."""
LONG_GROUP = 4
"""The episodes that begin in one state where games are long."""
EXPLORED = ((1e-3, 10_000), (1e-2, 1_000), (0.1, 100))
"""The steps of random play before the run where one takes less than so many seconds. They are few
classes, so that equal calls give equal runs."""
INVALID_LIMIT = 3
"""The replies in a row that cannot be read and end a long game: more take long and teach little."""
FEW_WORDS = 40
"""The most legal words that the system message lists."""


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
    """
    # what settings replace is told of the recipe itself
    draft = make_recipe(_widest(plain, settings), settings, lambda text: None)
    draft.env.look("training", draft.seed)
    env = draft.env.make("training")
    tasks = GeneratedTasks(env, "train", draft.seed).take(SURVEYED)
    nano = all(is_nano(policy.model) for policy in draft.weights.values())
    sizes = [p.nano or nano_preset(p.model) for p in draft.weights.values() if nano]
    found = _Found(
        draft=draft,
        shown=survey(env, tasks, draft.seed),
        tools=isinstance(env.unwrapped, ToolEnv),
        given=set(dotted_keys(settings)),
        seats=len(env.seats),
        context=min((each.context for each in sizes), default=None),
    )
    add = found.for_nano(plain["policies"]) if nano else found.for_real()
    if draft.evaluation.validation != "exact" and nano:
        add["evaluation"] = EVALUATION | found.validation(add["trainer"])
    add["credit"] = {**plain["credit"], **add.get("credit", {}), **found.invalid()}
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
    if "sft_mix.action_floor" in given:
        wide["sft_mix"] = {"spans": {"answer": 1.0, "action": ACTION_BARRIER}}
    asked = {"invalid_reply": "continue"}
    limited = {role for role in plain["agents"] if f"agents.{role}.invalid_limit" in given}
    agents = plain["agents"].items()
    return wide | {"agents": {r: {**a, **(asked if r in limited else {})} for r, a in agents}}


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The inputs of the defaults: the recipe as far as it is known, and the surveyed games.

    `given` are the dotted keys of the user's settings. `context` is that of the smallest nano
    model; None where models are not made on the spot.
    """

    draft: Recipe
    shown: Survey
    tools: bool
    given: Collection[str]
    seats: int
    context: int | None
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

    @property
    def is_long(self) -> bool:
        """Whether games have many turns."""
        return self.shown.groups.length > LONG

    @property
    def observation_is_state(self) -> bool:
        """Whether neither the past nor the env's key tells more than the observation does."""
        groups = self.shown.groups
        return groups.past_helps is False and not groups.key_helps and not self.tools

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
        steps = min(steps, GAME_TURNS * self.draft.trainer.iterations)
        why = "random play is cheap" if steps else "random play takes long"
        return {
            "kind": self.because("curriculum.kind", "restarts", reason),
            "explore": self.because("curriculum.explore", steps, why),
        }

    def for_real(self) -> Data:
        """Return the settings of a pretrained model: a system message that says how to answer."""
        for role in self.draft.agents:
            self.because(f"agents.{role}.history", *self.history)
        agents = {
            role: {"max_tokens": agent.max_tokens, **self._seen_by(role)}
            | {"system": self._instructions(agent)}
            for role, agent in self.draft.agents.items()
        }
        return {"agents": agents, "credit": self._credit()}

    def for_nano(self, policies: Mapping[str, Data]) -> Data:
        """Return what a model made on the spot gets: a warm-up, rehearsal, and small steps."""
        draft = self.draft
        sizes = {name: p.nano or nano_preset(p.model) for name, p in draft.weights.items()}
        inits = {
            name: {"init_std": round(each.hidden**-0.5, 2), **(policies[name].get("nano") or {})}
            for name, each in sizes.items()
        }
        assert self.context is not None, "nano models have one"
        thinks = all(agent.reply_format.thinks for agent in draft.agents.values())
        described = self.shown.described and thinks
        longest = self.shown.longest_reply()
        tokens = min(max(64, 2 * longest + TURN_TOKENS), self.context // 2)
        for role in draft.agents:
            self.because(f"agents.{role}.history", *self.history)
            self.because(
                f"agents.{role}.max_tokens", tokens, f"the longest reply has {longest} words"
            )
        agents = {r: {"max_tokens": tokens, **self._seen_by(r)} for r in draft.agents}
        trainer = draft.trainer
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
            "policies": {name: {**policies[name], "nano": inits[name]} for name in sizes},
            "agents": agents,
            "warmup": {
                "steps": WARM_STEPS,
                "batch_size": 32,
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
            "trainer": {"iterations": trainer.iterations, **self._sizes()},
            "credit": self._credit() | {"segments": {"answer": "return"} if described else {}},
        }

    def _end_of_warmup(self, *, tells: bool) -> Data:
        """Return when a warm-up on states without descriptions ends."""
        if tells:
            reason = "readable replies do not tell how well the model knows what follows"
            end = self.because("warmup.stop_at_accuracy", "never", reason)
            return {"stop_at_accuracy": end, "cooldown": WARM_COOLDOWN}
        return {"stop_at_accuracy": ALL_READABLE, "cooldown": WARM_COOLDOWN}

    def _sft_mix(self, *, described: bool) -> Data:
        """Return the rehearsal: descriptions and format always, uniform actions less and less."""
        mix = self.draft.sft_mix
        rows = {"rows": 32}
        rows |= {"states": "play"} if not mix or mix.data == "demonstrations" else {}
        agents = self.draft.agents.values()
        if len({(agent.policy, agent.reply) for agent in agents}) > len({a.policy for a in agents}):
            return rows  # spans are parts of one reply format
        spans = {"think": 5.0} if described else {}
        reason = "uniform actions are imitated less and less"
        return rows | {
            "spans": spans | {"answer": 1.0, "action": ACTION_BARRIER},
            "final": {"action": self.because("sft_mix.final.action", 0.0, reason)},
            "action_floor": ACTION_FLOOR,
        }

    def _sizes(self) -> Data:
        """Return how many tasks an iteration has, how many episodes of each, and of what length."""
        length, size = self.shown.groups.length, self.draft.trainer.group_size
        reason = f"a random episode has {length:.3g} turns in the mean"
        left: Data = {}
        if self.restarts:
            why = "an iteration has many short parts of long games, side by side"
            most = self.seats * (KNOWN_SEGMENT if self.observation_is_state else SEGMENT)
            left = {"max_turns": self.because("trainer.max_turns", most, why)}
            length = min(length, most)
            size = size if "trainer.group_size" in self.given else LONG_GROUP
        turns = min(GAME_TURNS, GAME_TOKENS / self._tokens_of_a_turn())
        episodes = min(max(turns / length, FEWEST_EPISODES), MOST_EPISODES)
        tasks = max(2, round(episodes / size), self.draft.trainer.minibatches)
        return {
            "tasks_per_iteration": self.because("trainer.tasks_per_iteration", tasks, reason),
            "group_size": size,
            "minibatches": min(NANO_MINIBATCHES, tasks, self.draft.trainer.tasks_per_iteration),
            **left,
        }

    def _tokens_of_a_turn(self) -> float:
        """Return about how many tokens the row of a mean turn of random play has."""
        turns = [words + TURN_TOKENS for game in self.shown.games for words in game.words]
        alone = sum(turns) / max(len(turns), 1)
        shown = {"observation": 1.0, "last_n": 1.0 + AgentConfig().last_n}
        return alone * shown.get(self.history[0], 1.0)  # a whole past is one row for all its turns

    def validation(self, sizes: Data) -> Data:
        """Return how often the policy is validated: two ways of decoding play each task."""
        episodes = sizes["tasks_per_iteration"] * sizes["group_size"]
        tasks = LONG_VALIDATION if self.restarts else EVALUATION["validation_tasks"]
        length = self.shown.groups.length
        share = min(1.0, sizes.get("max_turns", length) / length)  # of a game that training plays
        every = 2 * tasks / (VALIDATED * episodes * share)
        every = max(1, min(round(every), self.draft.trainer.iterations // LEAST_VALIDATIONS))
        reason = f"an iteration has {episodes} episodes"
        found = {"every": self.because("evaluation.every", every, reason)}
        return found | ({"validation_tasks": tasks} if self.restarts else {})

    def _credit(self) -> Data:
        """Return the credit: by turns where states recur, by episodes where they are one turn."""
        groups = self.shown.groups
        if groups.length <= 1:
            self.because("credit.scheme", "grpo", "an episode has one turn")
            return {"scheme": "grpo", "std": "batch_returns"}
        gamma = DISCOUNT
        if groups.length > SHORT:
            gamma = min(max(1 - 2 / groups.length, DISCOUNT), LONGEST_DISCOUNT)
        shared = f"{groups.recurring:.0%} of later states recur in a group of {GROUP}"
        self.because("credit.scheme", TURNS, f"turns are compared: {shared}")
        decides = "" if groups.key_is_state else "not "
        reason = f"in random play the state's key says {decides}all that decides what follows"
        trust = KEYS_DECIDE if groups.key_is_state else KEYS_HIDE
        shown: Data = {}
        if self.observation_is_state:
            why = "the env's key tells no more of what follows than the observation"
            shown = {"state_key": self.because("credit.state_key", "observation", why)}
        return {
            "scheme": TURNS,
            "least_advantage": LEAST_ADVANTAGE,
            **shown,
            "std": TURNS_STD,
            "gamma": self.because("credit.gamma", round(gamma, 3), "the length of random episodes"),
            "gae_lambda": self.because("credit.gae_lambda", trust, reason),
        }

    def _seen_by(self, role: str) -> Data:
        """Return what a role's prompts show, and what becomes of a reply that cannot be read."""
        shown: Data = {"role": role, "history": self.history[0]}
        shown |= {"show_legal": True} if self.shown.varies and not self.tools else {}
        computed = self.draft.evaluation.exact or self.draft.evaluation.validation == "exact"
        if self.is_long and not computed:
            reason = "games are long: one reply that cannot be read does not end them"
            rule = self.because(f"agents.{role}.invalid_reply", "continue", reason)
            shown |= {"invalid_reply": rule, "invalid_limit": INVALID_LIMIT}
        return shown

    @cached_property
    def history(self) -> tuple[str, str]:
        """How much of the past prompts hold, and the reason."""
        context, helps = self.context, self.shown.groups.past_helps
        if helps is False and not self.tools:
            return "observation", "in random play the past tells no more than the observation"
        why = "the past tells what the observation does not" if helps else "the past may matter"
        why = "results of calls are in the past" if self.tools else why
        legal = len(self.shown.first.legal_actions) + 3 if self.shown.varies else 0
        if (
            context is None
            or self.tools
            or ROOM * self.shown.longest(TURN_TOKENS + legal) <= context
        ):
            return "full", why
        if helps is None and not self.tools:
            return "observation", f"{why}, but all of it would not fit into {context} tokens"
        if 4 * self.shown.widest(TURN_TOKENS + legal) <= context:
            return "last_n", f"{why}, and all of it would not fit into {context} tokens"
        return "observation", f"two turns would not fit into {context} tokens"

    def _instructions(self, agent: AgentConfig) -> str:
        """Return the system message that says how to answer; empty where it has no place."""
        first = self.shown.first
        if first.raw or (first.messages and first.messages[0].role == "system"):
            return ""
        example = "ACTION"
        if self.shown.free:
            what = "your answer"
        elif self.shown.varies or len(first.legal_actions) > FEW_WORDS:
            what = "one of the legal actions" + (" listed" if self.shown.varies else "")
        else:
            what = "one of these actions: " + ", ".join(first.legal_actions)
            example = first.legal_actions[0]
        example = "your answer" if self.shown.free else example
        asked = agent.reply_format.ask(what, example)
        if self.tools:
            return f"Call tools as often as you need. When you know the answer, {asked}"
        return asked[0].upper() + asked[1:]
