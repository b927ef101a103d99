"""The defaults of `turnwise.train` in an env: a recipe that fits the env and the model.

Provides `env_recipe`. What depends on the env is measured by a few games without a model
(`envs.survey`). A model made on the spot is first taught the format on states of random play and
rehearses it from then on; the system message of a real model says how to answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.agents import AgentConfig
from turnwise.envs import ToolEnv
from turnwise.envs.survey import Survey, survey
from turnwise.policies import is_nano, nano_preset
from turnwise.recipe.schema import Recipe, make_recipe
from turnwise.tasks import GeneratedTasks

Data = dict[str, Any]
SURVEYED = 16
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
NANO_RATE, NANO_RATE_WARMUP, NANO_MINIBATCHES = 2e-4, 10, 2
"""At 1e-3 and eight mini-batches the first update destroys what the warm-up has taught."""
EVALUATION = {"decoding": "validated", "validate_start": True, "validation_tasks": 128}
"""A nano model starts near uniform play, whose most probable action is the same nearly everywhere:
played greedily it is worse than random play."""
FEW_WORDS = 40
"""The most legal words that the system message lists."""


def env_recipe(plain: Data, settings: Mapping[str, Any]) -> Data:
    """Return the plain values of a recipe, completed by the defaults that fit its env and model.

    A nano model's first weights have a standard deviation of 1 / sqrt(width): with the usual 0.02
    its words begin too much alike to learn to copy one of the legal words.

    Args:
        plain: what was given (name, env, policy, credit) and TRL's defaults.
        settings: what the user replaces; looked at, not applied.
    """
    draft = make_recipe(plain, settings)
    draft.env.look("training", draft.seed)
    env = draft.env.make("training")
    tasks = GeneratedTasks(env, "train", draft.seed).take(SURVEYED)
    found = _Found(
        draft=draft, shown=survey(env, tasks, draft.seed), tools=isinstance(env.unwrapped, ToolEnv)
    )
    nano = all(is_nano(policy.model) for policy in draft.weights.values())
    add = found.for_nano(plain["policies"]) if nano else found.for_real()
    rewards = found.rewards(plain["credit"]["rewards"])
    if draft.evaluation.validation != "exact" and nano:
        add["evaluation"] = EVALUATION
    add["credit"] = {**plain["credit"], **add.get("credit", {}), "rewards": rewards}
    return {**plain, **add}


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The inputs of the defaults: the recipe as far as it is known, and the surveyed games."""

    draft: Recipe
    shown: Survey
    tools: bool

    def rewards(self, weights: Mapping[str, float]) -> Data:
        """Return the weights of the return: an invalid reply costs more than any honest game."""
        credit = self.draft.credit
        if "invalid" in credit.rewards or credit.scheme == "maxrl":  # maxrl takes no negative ones
            return dict(weights)
        return {**weights, "invalid": -round(self.shown.penalty(credit.rewards), 4)}

    def for_real(self) -> Data:
        """Return the settings of a pretrained model: a system message that says how to answer."""
        agents = {
            role: {"max_tokens": agent.max_tokens, **self._seen_by(role, "full")}
            | {"system": self._instructions(agent)}
            for role, agent in self.draft.agents.items()
        }
        return {"agents": agents}

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
        tokens = min(max(64, 2 * self.shown.longest_reply() + TURN_TOKENS), context // 2)
        agents = {r: {"max_tokens": tokens, **self._seen_by(r, history)} for r in draft.agents}
        trainer = draft.trainer
        updates = trainer.iterations * trainer.updates_per_batch
        spans = {"think": 5.0, "answer": 1.0} if described else {}
        play = {"states": "play"}
        return {
            "policies": {name: {**policies[name], "nano": inits[name]} for name in sizes},
            "agents": agents,
            "warmup": {
                "steps": WARM_STEPS,
                "batch_size": 32,
                **(
                    {}
                    if described
                    else {"stop_at_accuracy": ALL_READABLE, "cooldown": WARM_COOLDOWN}
                ),
                "optimizer": {
                    "lr": WARM_RATE,
                    "schedule": "linear",
                    "warmup_steps": min(
                        WARM_RISE, draft.warmup.steps if draft.warmup else WARM_STEPS
                    ),
                },
                **(play if draft.warmup is None or draft.warmup.data == "demonstrations" else {}),
            },
            "sft_mix": {
                "rows": 32,
                "spans": spans,
                **(play if not draft.sft_mix or draft.sft_mix.data == "demonstrations" else {}),
            },
            "optimizer": {
                "lr": NANO_RATE,
                "schedule": "linear",
                "warmup_steps": min(NANO_RATE_WARMUP, updates),
            },
            "trainer": {
                "iterations": trainer.iterations,
                "tasks_per_iteration": 16,
                "group_size": 8,
                "minibatches": min(NANO_MINIBATCHES, trainer.tasks_per_iteration),
            },
            "credit": {"segments": {"answer": "return"} if described else {}},
        }

    def _seen_by(self, role: str, history: str) -> Data:
        """Return what a role's prompts show."""
        shown = {"role": role, "history": history}
        return shown | ({"show_legal": True} if self.shown.varies and not self.tools else {})

    def _history(self, context: int) -> str:
        """Return how much of the past the prompts of a nano model have room for."""
        legal = len(self.shown.first.legal_actions) + 3 if self.shown.varies else 0
        if self.tools or ROOM * self.shown.longest(TURN_TOKENS + legal) <= context:
            return "full"
        return "last_n" if 4 * self.shown.widest(TURN_TOKENS + legal) <= context else "observation"

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
