"""The checks of a recipe's topology: against the env, the credit scheme and the trainer.

Provides `check_topology`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnwise.credit import SCHEMES
from turnwise.envs import Env, PettingZooEnv
from turnwise.rollout.metrics import SELF
from turnwise.trainers.config import GrpoConfig
from turnwise.workflows.topologies import MOST_CELLS, TOPOLOGIES, SiblingsConfig

if TYPE_CHECKING:
    from turnwise.recipe.schema import Recipe


def check_topology(recipe: Recipe, env: Env[Any]) -> None:
    """Refuse a topology that the env, the scheme or the trainer cannot use.

    Raises:
        ValueError: which names what works.
    """
    kind, scheme = recipe.topology.kind, SCHEMES[recipe.credit.scheme]
    refusal = TOPOLOGIES[kind].refusal(env)
    if refusal:
        raise ValueError(f"topology.kind = {kind!r} does not go with env {env.name!r}: {refusal}")
    if kind not in scheme.topologies:
        raise ValueError(_other_scheme(kind, recipe.credit.scheme))
    if isinstance(recipe.topology, SiblingsConfig):
        _check_siblings(recipe, recipe.topology, env)
        if scheme.needs_cross_tables and not recipe.topology.has_cross_tables:
            raise ValueError(
                f"credit.scheme = {recipe.credit.scheme!r} compares the entries of a cross table, "
                "which topology.orders = 'sequential' does not make: set topology.orders = "
                "'cross', or credit.scheme = 'at_grpo'"
            )


def _other_scheme(kind: str, name: str) -> str:
    """Return why a scheme cannot compare what a topology samples, and what can."""
    fitting = [other for other, each in SCHEMES.items() if kind in each.topologies]
    fit = [*map(repr, SCHEMES[name].topologies)]
    known = ", ".join(fit)
    if SCHEMES[name].by_sibling:
        why = f"compares siblings as topology.kind = {known} samples them"
    else:
        why = (
            "compares the returns of whole episodes, or returns-to-go, which siblings that do not "
            "go on have not"
        )
    return (
        f"credit.scheme = {name!r} does not go with topology.kind = {kind!r}: it {why}; set "
        f"topology.kind to {'one of ' * (len(fit) > 1)}{known}, or credit.scheme to one of "
        f"{', '.join(fitting)}"
    )


def _check_siblings(recipe: Recipe, topology: SiblingsConfig, env: Env[Any]) -> None:
    """Refuse settings that take an episode for what is compared, or one that cannot be repeated."""
    what = f"topology.kind = {recipe.topology.kind!r}"
    trainer = recipe.trainer
    _check_seats(recipe, what, env)
    if not isinstance(trainer, GrpoConfig):
        raise ValueError(
            f"{what} samples siblings, which trainer.kind = {trainer.kind!r} does not compare: set "
            "topology.kind = 'independent', or trainer.kind = 'grpo'"
        )
    if trainer.truncated_completions == "exclude":
        raise ValueError(
            f"trainer.truncated_completions = 'exclude' leaves whole episodes out, and {what} "
            "compares turns: set it to 'mask' or 'train'"
        )
    if recipe.credit.invalid_below_worst:
        raise ValueError(
            f"credit.invalid_below_worst compares whole episodes, and {what} compares turns: leave "
            "it out, and give credit.rewards.invalid a weight below 0"
        )
    if recipe.curriculum.kind != "uniform":
        raise ValueError(
            f"curriculum.kind = {recipe.curriculum.kind!r} repeats the actions of episodes with "
            f"the draws that they had, and siblings of {what} may have other draws: set "
            "curriculum.kind = 'uniform'"
        )
    if not topology.has_cross_tables:
        return
    seats = len(env.seats)
    cells = topology.siblings**seats
    if seats == 1 or cells > MOST_CELLS:
        found = "has one seat" if seats == 1 else f"may have tables of {cells} entries"
        raise ValueError(
            f"topology.orders = 'cross' is for several seats that act at the same time, and at "
            f"most {MOST_CELLS} combinations; env {env.name!r} {found}: set topology.orders = "
            "'sequential'"
        )


def _check_seats(recipe: Recipe, what: str, env: Env[Any]) -> None:
    """Refuse opponents, and an env whose steps reward other seats.

    Siblings are judged by what their own seat and its team earn in the steps that follow. An env of
    one's own is refused when a random episode has such a step (`rollout.workflow_check`).
    """
    given = recipe.opponents
    if given is not None and not given.trains_alone:
        others = ", ".join(name for name, share in given.shares.items() if share and name != SELF)
        raise ValueError(
            f"opponents.shares lets {others} play, and {what} samples siblings of the policy's own "
            "turns in all seats: set topology.kind = 'independent', or leave [opponents] out"
        )
    if env.opponents or (isinstance(env.unwrapped, PettingZooEnv) and len(env.seats) > 1):
        raise ValueError(
            f"{what} judges a sibling by what its own seat and its team earn, but steps of env "
            f"{env.name!r} reward other seats, too (`Step.others`): set topology.kind = "
            "'independent'"
        )
