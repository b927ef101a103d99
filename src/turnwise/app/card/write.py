"""A run as a folder that can be published: weights, tokenizer, model card, recipe and scores.

Provides `write_card`. What is written holds no absolute paths of this machine and no secrets that
can be recognised.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from warnings import warn

import tomli_w

from turnwise.app.card.files import README, published_files, published_scores
from turnwise.app.card.readme import CardFacts, card_text
from turnwise.app.card.usage import example_for, usage_code
from turnwise.app.card.weights import PublishedPolicy, write_weights
from turnwise.app.film import noted_film
from turnwise.app.sources import best_checkpoint
from turnwise.app.stages import PRETRAIN, without_adapters
from turnwise.errors import RunError
from turnwise.policies.folders import quiet, replaced_folder
from turnwise.recipe.schema import Recipe, load_recipe
from turnwise.report.curve import draw_curve
from turnwise.runs import Checkpoint, Run, RunScores, read_metrics, read_scores, resume_command
from turnwise.search.folder import is_search
from turnwise.utils.redaction import cleaned, secrets_in

KEPT = frozenset({"system"})
"""The keys of a recipe whose texts are prompts, which are published as they are."""
HEAD = (
    "# The resolved recipe of the run. Absolute paths are cut to their last part, and what seems\n"
    "# to be a secret is removed: set such values again before you train it.\n"
)


def write_card(
    run: Path, out: Path | None = None, *, license: str = "", note: Callable[[str], None] = warn
) -> Path:
    """Write the model card of a finished run and return its folder.

    Args:
        run: the run folder.
        out: where the card goes, a folder that does not exist; None is `card` in the run folder.
        license: the license of the weights, as the hub names it; empty leaves it open.
        note: receives a sentence if there is no film because the env plays differently now.

    Raises:
        RunError: if there is no run, it is not finished, or `out` exists.
        TurnwiseError: if a policy cannot be published; the message says why.
    """
    folder, scores = _finished(run)
    target = folder.card if out is None else out
    if target.exists():
        raise RunError(f"'{target}' exists: delete it, or choose another folder with --out")
    recipe = load_recipe(str(folder.recipe), (), lambda text: None)
    chosen = best_checkpoint(folder, recipe)
    _check_scored(folder, scores, chosen)
    film = noted_film(folder, note)
    with replaced_folder(target) as place, quiet():
        policies = write_weights(place, folder, recipe, chosen)
        plain = without_adapters(recipe) if chosen.phase == PRETRAIN else recipe
        records = read_metrics(folder.metrics)
        if film is not None:
            (place / folder.film.name).write_bytes(film.gif)
        draw_curve(place / folder.curve.name, recipe.name, records, scores)
        facts = CardFacts(
            run=folder,
            recipe=plain,
            scores=scores,
            records=records,
            policies=policies,
            code=_codes(place, plain, scores, policies),
            film="" if film is None else film.caption,
            license=license,
        )
        _write_settings(place, folder, scores)
        (place / README).write_text(card_text(facts), encoding="utf-8")
        published_files(place)
    return target


def _finished(run: Path) -> tuple[Run, RunScores]:
    """Return a finished run and its scores."""
    if is_search(run):
        raise RunError(
            f"'{run}' is the folder of a search, which has trained no weights: expected a run of "
            "`turnwise train`"
        )
    folder = Run.open(run)
    scores = read_scores(folder.evaluation)
    if scores is None:
        raise RunError(
            f"run '{run}' is not finished, it has no {folder.evaluation.name}: finish it with "
            f"`{resume_command(run)}`"
        )
    return folder, scores


def _check_scored(folder: Run, scores: RunScores, chosen: Checkpoint) -> None:
    """Refuse scores of other weights than those of the card."""
    best = f"{chosen.phase} {chosen.step}"
    if scores.checkpoint and scores.checkpoint != best:
        raise RunError(
            f"{folder.evaluation.name} of run '{folder.path}' has the scores of checkpoint "
            f"{scores.checkpoint}, but the best one is now {best}: test that one with "
            f"`{resume_command(folder.path)}`"
        )


def _codes(
    place: Path, recipe: Recipe, scores: RunScores, policies: list[PublishedPolicy]
) -> dict[str, str]:
    """Return policy name -> the code that uses it, for the policies that play a role."""
    env = recipe.env.make("evaluation")
    how: dict[str, Any] = {"seed": scores.seed, "decoding": scores.decoding}
    found: dict[str, str] = {}
    for policy in policies:
        agents = [agent for agent in recipe.agents.values() if agent.policy == policy.name]
        if agents:
            example = example_for(place, policy, agents, env, **how)
            found[policy.name] = usage_code(policy, example)
            secrets = secrets_in(found[policy.name])
            if secrets:
                raise RunError(
                    f"the prompt of role {agents[0].role!r} seems to hold {secrets[0]}, and the "
                    "code of a card shows it: remove it from the run's recipe.toml or from the env"
                )
    return found


def _write_settings(place: Path, folder: Run, scores: RunScores) -> None:
    """Write the recipe and the scores without paths and secrets."""
    settings = tomllib.loads(folder.recipe.read_text(encoding="utf-8"))
    for policy in settings["policies"].values():
        model = policy.get("model", "")
        if Path(model).is_absolute() or model.startswith(("~", "..")):
            policy["model"] = f"./{Path(policy['model']).name}"  # a bare name may be a preset's
    text = tomli_w.dumps(cleaned(settings, KEPT))
    (place / folder.recipe.name).write_text(HEAD + text, encoding="utf-8")
    (place / folder.evaluation.name).write_text(published_scores(scores), encoding="utf-8")
