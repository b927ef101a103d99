"""The README.md of a model card: what was trained, on what, how well it plays, and how to use it.

Provides `CardFacts` and `card_text`. The text is that of a Hugging Face model card: YAML between
two lines of dashes, then Markdown.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import turnwise
from turnwise.app.card.weights import PublishedPolicy
from turnwise.envs import ENVS
from turnwise.policies import is_nano
from turnwise.recipe.schema import Recipe
from turnwise.report.report import cost_lines, finding_lines, measure_lines, result_lines
from turnwise.runs import Run, RunScores
from turnwise.runs.metrics import Record
from turnwise.utils.redaction import without_paths, without_secrets
from turnwise.utils.text import as_code, in_cell, in_line, printable

HOME = "https://github.com/turnwise/turnwise"


@dataclass(frozen=True, kw_only=True, slots=True)
class CardFacts:
    """What a model card is written from.

    `code` is policy name -> the code that uses it. `film` says what the film shows; empty if there
    is none. `license` is the user's choice; empty if they have not said.
    """

    run: Run
    recipe: Recipe
    scores: RunScores
    records: Sequence[Record]
    policies: Sequence[PublishedPolicy]
    code: dict[str, str]
    film: str
    license: str


def card_text(facts: CardFacts) -> str:
    """Return the README.md of a card."""
    parts = (
        _front_matter(facts),
        [f"# {in_line(facts.recipe.name)}"],
        _about(facts),
        _usage(facts),
        result_lines(facts.records, facts.scores),
        measure_lines(facts.scores),
        _training(facts),
        cost_lines(facts.records),
        finding_lines(facts.run, facts.scores),
        _film(facts),
        _citation(facts),
    )
    said = ["\n".join(part) for part in parts if part]
    usage = "\n".join(_usage(facts))  # its prompts stay as they are
    shown = [p if p == usage else without_secrets(without_paths(p)) for p in said]
    return printable("\n\n".join(shown) + "\n")


def original_model(policy: PublishedPolicy, recipe: Recipe) -> str:
    """Return the hub name of the model that a policy's training began with; empty if it has none.

    A model that was made on the spot has none, and neither has a folder of this machine.
    """
    if policy.base_folder and not recipe.pretrains:
        return ""
    model = recipe.weights[policy.name].model
    local = Path(model).expanduser()
    if is_nano(model) or local.exists() or local.is_absolute() or model.startswith((".", "~")):
        return policy.base
    return policy.base or model


def _front_matter(facts: CardFacts) -> list[str]:
    """Return the card's metadata; a JSON string is a YAML string."""
    adapters = any(policy.is_adapter for policy in facts.policies)
    models = dict.fromkeys(original_model(each, facts.recipe) for each in facts.policies)
    named = [model for model in models if model]
    lines = ["---"]
    if named:
        lines += ["base_model:", *(f"- {_yaml(model)}" for model in named)]
        lines += [f"base_model_relation: {'adapter' if adapters else 'finetune'}"]
    lines += [f"library_name: {'peft' if adapters else 'transformers'}"]
    lines += ["pipeline_tag: text-generation"]
    lines += [f"license: {_yaml(facts.license)}"] if facts.license else []
    env = [facts.recipe.env.name] if facts.recipe.env.name in ENVS else []
    tags = ["turnwise", "reinforcement-learning", str(facts.recipe.credit.scheme), *env]
    lines += ["tags:", *(f"- {_yaml(tag)}" for tag in [*tags, *(["lora"] if adapters else [])])]
    return [*lines, *_model_index(facts), "---"]


def _model_index(facts: CardFacts) -> list[str]:
    """Return the results as the hub reads them."""
    scores, env = facts.scores, without_paths(facts.scores.env)
    metrics = {f"score, {scores.decoding}": scores.score}
    metrics |= {name: measure.mean for name, measure in scores.measures.items()}
    lines = ["model-index:", f"- name: {_yaml(facts.recipe.name)}", "  results:"]
    lines += ["  - task:", "      type: reinforcement-learning", "    dataset:"]
    lines += [f"      type: {_yaml(env)}"]
    lines += [f"      name: {_yaml(f'{env}: {scores.described}, seed {scores.seed}')}"]
    lines += ["    metrics:"]
    for name, value in metrics.items():
        kind = name.split(",")[0].replace("_", "-")
        lines += [f"    - type: {_yaml(kind)}", f"      name: {_yaml(name)}"]
        lines += [f"      value: {_number(value)}"]
    return lines


def _yaml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number for YAML, where one with an exponent must have a point."""
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def _about(facts: CardFacts) -> list[str]:
    lines = [_what(policy, facts.recipe) for policy in facts.policies]
    for name, remote in facts.recipe.remote.items():
        model = as_code(remote.model)
        lines += [f"- `{name}` is the model {model} at an endpoint, which is not here."]
    for name, other in facts.recipe.weights.items():
        if not other.trainable:
            model = as_code(without_paths(other.model))
            lines += [f"- `{name}` is the model {model} without training, which is not here."]
    env = facts.recipe.env
    lines += ["", f"Trained by [turnwise]({HOME}) in the env {as_code(without_paths(env.name))}."]
    if env.name in ENVS:
        text = inspect.getdoc(inspect.getmodule(ENVS[env.name])) or ""
        lines[-1] += " " + " ".join(text.split("\n\n")[0].split())
    if not facts.license:
        lines += ["", "The author has not chosen a license yet."]
    return lines


def _what(policy: PublishedPolicy, recipe: Recipe) -> str:
    """Return what the files of a policy are."""
    own, original = recipe.weights[policy.name], original_model(policy, recipe)
    linked = f"[`{original}`](https://huggingface.co/{original})" if original else ""
    made = f"a model that the run made (`{own.model}`)" if is_nano(own.model) else ""
    start = linked or made or "a model from a folder of the author"
    where = f" in `{policy.folder}`" if policy.folder else ""
    roles = ", ".join(f"`{role}`" for role, a in recipe.agents.items() if a.policy == policy.name)
    plays = f"plays {roles}" if roles else "plays no role by itself"
    if not policy.is_adapter:
        return f"- `{policy.name}` {plays}: all weights{where}, trained from {start}."
    summed = " It is the sum of the warm-up's adapter and of the one trained on it by playing."
    beside = ""
    if policy.base_folder:
        trained = ", with all weights trained before" if recipe.pretrains else ""
        beside = f"{trained} (a copy is in `{policy.base_folder}`)"
    return (
        f"- `{policy.name}` {plays}: a LoRA adapter of rank {policy.rank}{where} on {start}"
        f"{beside}.{summed if policy.stages > 1 else ''}"
    )


def _usage(facts: CardFacts) -> list[str]:
    needs = "transformers" if not any(p.is_adapter for p in facts.policies) else "peft transformers"
    lines = ["## Usage", "", f"`pip install torch {needs}`, in this folder:"]
    for name, code in facts.code.items():
        title = [f"`{name}`:", ""] if len(facts.code) > 1 else []
        lines += ["", *title, "```python", *code.rstrip("\n").split("\n"), "```"]
    return lines


def _training(facts: CardFacts) -> list[str]:
    recipe = facts.recipe
    rows: list[tuple[str, Any]] = [
        ("recipe", f"{in_cell(as_code(recipe.name))}, seed {recipe.seed}")
    ]
    for name, phase in (("pretraining", recipe.pretrain), ("warm-up", recipe.warmup)):
        if phase is not None and phase.steps:
            said = f"{phase.steps} steps of {phase.batch_size} rows, rate {phase.optimizer.lr:g}"
            rows.append((name, said))
    one = recipe.trainer
    if recipe.has("trainer"):
        played = f"{one.iterations} iterations, {one.tasks_per_iteration} tasks"
        rows += [(f"trainer `{one.kind}`", f"{played}, groups of {one.group_size}")]
        rows += [("credit", f"`{recipe.credit.scheme}`"), ("loss", f"`{recipe.loss.kind}`")]
        rate = recipe.optimizer.lr
        rows += [("learning rate", rate if isinstance(rate, str) else f"{rate:g}")]
    return [
        "## Training",
        "",
        "![score, return, entropy and groups by training iteration](curve.png)",
        "",
        "| setting | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        "All settings are in [recipe.toml](recipe.toml), all scores in [eval.json](eval.json). "
        "`turnwise train recipe.toml` trains and tests it again.",
    ]


def _film(facts: CardFacts) -> list[str]:
    if not facts.film:
        return []
    return ["## An episode", "", facts.film, "", "![an episode](episode.gif)"]


def _citation(facts: CardFacts) -> list[str]:
    named = sorted({original_model(each, facts.recipe) for each in facts.policies} - {""})
    bases = ", ".join(f"`{model}`" for model in named)
    also = f" Cite the authors of {bases}, too." if named else ""
    return [
        "## Citation",
        "",
        f"If you use this model, please cite turnwise.{also}",
        "",
        "```bibtex",
        "@software{turnwise,",
        "  author  = {{The turnwise authors}},",
        "  title   = {turnwise: train language-model agents, alone or in teams, by playing},",
        f"  version = {{{turnwise.__version__}}},",
        f"  url     = {{{HOME}}},",
        "}",
        "```",
    ]
