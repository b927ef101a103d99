"""The defaults of `turnwise.train` in an env: a recipe that fits the env and the model.

Provides `env_recipe`. What depends on the env is measured by a few games without a model
(`envs.survey`). A model made on the spot is first taught the format on states of random play and
rehearses it from then on; the system message of a real model says how to answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from turnwise.agents import AgentConfig
from turnwise.envs import ToolEnv
from turnwise.envs.survey import GROUP, Survey, survey
from turnwise.policies import is_nano, nano_preset
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
GAME_TURNS = 1024
"""The turns that an iteration's episodes are to have together, by the survey's mean length."""
FEWEST_EPISODES, MOST_EPISODES = 16, 128
TURNS, TURNS_STD = "gae", "batch_advantages"
"""The credit scheme of episodes of several turns."""
KEYS_DECIDE, KEYS_HIDE = 0.3, 0.9
"""How much a turn's advantage counts on what followed in its own episode, where the key of a state
says all that decides the future, and where it does not."""
SHORT, DISCOUNT, LONGEST_DISCOUNT = 8, 0.95, 0.99
"""Up to `SHORT` turns a return is not discounted by more than `DISCOUNT` a turn."""
EVALUATION = {"decoding": "validated", "validate_start": True, "validation_tasks": 128}
"""A nano model starts near uniform play, whose most probable action is the same nearly everywhere:
played greedily it is worse than random play."""
LEAST_VALIDATIONS = 5
VALIDATED = 0.1
"""The episodes of validation as a share of those that are trained."""
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
    several = {"credit": {**plain["credit"], "scheme": TURNS, "std": TURNS_STD}}
    # settings of this credit are no mistake; what they replace is told of the recipe itself
    draft = make_recipe({**plain, **several}, settings, lambda text: None)
    draft.env.look("training", draft.seed)
    env = draft.env.make("training")
    tasks = GeneratedTasks(env, "train", draft.seed).take(SURVEYED)
    found = _Found(
        draft=draft, shown=survey(env, tasks, draft.seed), tools=isinstance(env.unwrapped, ToolEnv)
    )
    nano = all(is_nano(policy.model) for policy in draft.weights.values())
    add = found.for_nano(plain["policies"]) if nano else found.for_real()
    if draft.evaluation.validation != "exact" and nano:
        add["evaluation"] = EVALUATION | found.validation(add["trainer"])
    add["credit"] = {**plain["credit"], **add.get("credit", {}), **found.invalid()}
    return EnvRecipe(data={**plain, **add}, reasons=found.reasons)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The inputs of the defaults: the recipe as far as it is known, and the surveyed games."""

    draft: Recipe
    shown: Survey
    tools: bool
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

    def for_real(self) -> Data:
        """Return the settings of a pretrained model: a system message that says how to answer."""
        history = self._history(None)
        for role in self.draft.agents:
            self.because(f"agents.{role}.history", *history)
        agents = {
            role: {"max_tokens": agent.max_tokens, **self._seen_by(role, history[0])}
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
        context = min(each.context for each in sizes.values())
        history = self._history(context)
        thinks = all(agent.reply_format.thinks for agent in draft.agents.values())
        described = self.shown.described and thinks
        longest = self.shown.longest_reply()
        tokens = min(max(64, 2 * longest + TURN_TOKENS), context // 2)
        for role in draft.agents:
            self.because(f"agents.{role}.history", *history)
            self.because(
                f"agents.{role}.max_tokens", tokens, f"the longest reply has {longest} words"
            )
        agents = {r: {"max_tokens": tokens, **self._seen_by(r, history[0])} for r in draft.agents}
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
        }

    def _sizes(self) -> Data:
        """Return how many tasks an iteration has, and how many episodes of each."""
        length, size = self.shown.groups.length, self.draft.trainer.group_size
        episodes = min(max(GAME_TURNS / length, FEWEST_EPISODES), MOST_EPISODES)
        tasks = max(2, round(episodes / size), self.draft.trainer.minibatches)
        reason = f"a random episode has {length:.3g} turns in the mean"
        return {
            "tasks_per_iteration": self.because("trainer.tasks_per_iteration", tasks, reason),
            "group_size": size,
            "minibatches": min(NANO_MINIBATCHES, tasks, self.draft.trainer.tasks_per_iteration),
        }

    def validation(self, sizes: Data) -> Data:
        """Return how often the policy is validated: two ways of decoding play each task."""
        episodes = sizes["tasks_per_iteration"] * sizes["group_size"]
        every = 2 * EVALUATION["validation_tasks"] / (VALIDATED * episodes)
        every = max(1, min(round(every), self.draft.trainer.iterations // LEAST_VALIDATIONS))
        reason = f"an iteration has {episodes} episodes"
        return {"every": self.because("evaluation.every", every, reason)}

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
        return {
            "scheme": TURNS,
            "std": TURNS_STD,
            "gamma": self.because("credit.gamma", round(gamma, 3), "the length of random episodes"),
            "gae_lambda": self.because("credit.gae_lambda", trust, reason),
        }

    def _seen_by(self, role: str, history: str) -> Data:
        """Return what a role's prompts show."""
        shown = {"role": role, "history": history}
        return shown | ({"show_legal": True} if self.shown.varies and not self.tools else {})

    def _history(self, context: int | None) -> tuple[str, str]:
        """Return how much of the past prompts of so many tokens hold, and the reason."""
        helps = self.shown.groups.past_helps
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
