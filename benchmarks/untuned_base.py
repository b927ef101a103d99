"""Make a small pretrained base for `benchmarks/untuned.py --model BASE --lora`.

    python benchmarks/untuned_base.py BASE --steps 3000

The base is trained, by supervised fine-tuning alone, on transcripts of random play in all envs of
the battery: the system message that `turnwise.train` gives a pretrained model, observations,
replies with uniformly random legal actions, and what followed. It knows how to answer, and nothing
of which action is good.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from untuned import BATTERY

import turnwise as tw
from turnwise.app.made_recipe import recipe_for_env
from turnwise.app.transcripts import transcripts_of
from turnwise.policies import NanoConfig, make_nano
from turnwise.policies.presets import nano_preset
from turnwise.recipe.from_python import policy_section
from turnwise.recipe.schema import Recipe
from turnwise.render import Renderer
from turnwise.tasks import GeneratedTasks
from turnwise.trainers.demonstrations import Demonstrations
from turnwise.types import TrainingSample

ROWS, RATE, RISE = 24, 1e-3, 50


def recipe_of(name: str, base: Path) -> Recipe:
    """Return the recipe that `turnwise.train(BASE, env=ENV)` makes, with states of play."""
    world = BATTERY[name]
    env = tw.make_env(world.env, **world.options) if world.options else world.env
    given = dict.fromkeys(("rows", "reward", "eval_rows", "reward_weights", "settings"))
    wanted = recipe_for_env(policy_section(base), env, given)
    settings = {"warmup.states": "play", "warmup.outcomes": True}
    recipe, _ = wanted.tried(settings, lambda text: None)
    return recipe


def rows_of(recipe: Recipe, renderer: Renderer, context: int) -> Demonstrations:
    """Return the transcripts of random play in the env of a recipe."""
    env = recipe.env.make("training")
    return Demonstrations(
        env=env,
        tasks=GeneratedTasks(env, "train", seed=1),
        agent=recipe.agents["player"],
        renderer=renderer,
        policy="main",
        seed=1,
        states="play",
        context=context,
        outcomes=True,
    )


def padded(rows: list[TrainingSample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and labels of rows, [rows, tokens]; what is not imitated has the label -100."""
    width = max(len(row.token_ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), -100)
    for place, row in enumerate(rows):
        tokens = torch.from_numpy(row.token_ids.astype("int64"))
        ids[place, : len(tokens)] = tokens
        told = torch.from_numpy(row.ce_weight) > 0
        labels[place, : len(tokens)][told] = tokens[told]
    return ids, labels


def main() -> None:
    """Make the base."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("base", type=Path)
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    names = [name for name, world in BATTERY.items() if world.env != "rows"]
    sizes = nano_preset("nano").model_dump() | {"init_std": 0.09, "context": 1024}
    args.base.mkdir(parents=True)  # a name that is a directory is a pretrained model
    recipes = {name: recipe_of(name, args.base) for name in names}
    texts = [text for recipe in recipes.values() for text in transcripts_of(recipe)]
    texts += [recipe.agents["player"].system for recipe in recipes.values()]
    make_nano(args.base, texts, ["reward", "end"], NanoConfig(**sizes), seed=0)
    model = AutoModelForCausalLM.from_pretrained(args.base).train()
    renderer = Renderer(AutoTokenizer.from_pretrained(args.base))
    sources = [rows_of(recipe, renderer, sizes["context"]) for recipe in recipes.values()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0)
    began = time.perf_counter()
    for step in range(args.steps):
        numbers = range(step * ROWS, (step + 1) * ROWS)
        rows = [sources[n % len(sources)].row(n // len(sources)) for n in numbers]
        ids, labels = padded(rows)
        share = min((step + 1) / RISE, 1 - step / args.steps)
        for group in optimizer.param_groups:
            group["lr"] = RATE * share
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            print(f"{step + 1} {loss.item():.3f} {time.perf_counter() - began:.0f} s", flush=True)
    model.save_pretrained(args.base)


if __name__ == "__main__":
    main()
