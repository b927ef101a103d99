"""No map that a run learns from is among those it is judged on, by the run's own task sources."""

from __future__ import annotations

import itertools

import pytest

from turnwise.recipe.schema import load_recipe, recipe_names, recipe_summary
from turnwise.tasks import GeneratedTasks
from turnwise.trainers.sft import rows_for

LAKES = [name for name in recipe_names() if recipe_summary(name)["env"] == "frozen-lake"]
TINY = "policies.main.nano={hidden=16,layers=1,heads=2,kv_heads=1,head_dim=8,intermediate=16}"


def images(rows):
    """Return a map's holes and goals in all of its mirror images, the start being ice."""
    places = ((r, c, x) for r, row in enumerate(rows) for c, x in enumerate(row))
    cells = {(r, c, letter) for r, c, letter in places if letter in "HG"}
    last = len(rows) - 1
    found = []
    for down, right, turned in itertools.product((False, True), repeat=3):
        moved = {(last - r if down else r, last - c if right else c, x) for r, c, x in cells}
        found.append(
            (len(rows), frozenset((c, r, x) if turned else (r, c, x) for r, c, x in moved))
        )
    return frozenset(found)


def maps(tasks):
    """Return the images of the tasks' maps, each map in all of its images."""
    return {image for task in tasks for image in images(task.data["map"])}


def learned_from(session, recipe):
    """Return the maps of warm-up and training, and those that choose the checkpoint."""
    warmup = [session.warmup_tasks.task(i) for i in range(200)]
    training = [v.task for i in range(3) for v in session.curriculum.visits(i, count=50)]
    chosen = session.validation.take(100)
    seeing = session.validation_states.take(100)
    return {"warm-up": maps(warmup), "training": maps(training)}, {
        "validation": maps(chosen), "perception": maps(seeing),
    }  # fmt: skip


@pytest.mark.parametrize("name", LAKES)
@pytest.mark.parametrize(
    "overrides",
    [(), ("seed=1",), ("seed=2", "env.training.mirrored=true", "env.options.slippery=true")],
    ids=["seed 0", "seed 1", "mirrored"],
)
def test_no_map_is_on_two_sides(make_session, name, overrides):
    nano = ("policies.main.model=nano", "policies.main.template_options=none", TINY)
    recipe = load_recipe(name, ["preset=smoke", *nano, "policies.main.device=cpu", *overrides])
    session = make_session(recipe)
    judged = recipe.env.make("evaluation")
    if judged.single_task:  # one problem in every split, and said to be
        assert session.validation.seen and GeneratedTasks(judged, "test", 0).seen
        return
    learned, validated = learned_from(session, recipe)
    tests = {
        seed: maps(GeneratedTasks(judged, "test", seed).take(150))
        for seed in (recipe.seed, recipe.seed + 1, 99)
    }
    for seed, test in tests.items():
        for phase, seen in (learned | validated).items():
            assert seen.isdisjoint(test), (phase, seed)
    for one, other in itertools.product(learned, validated):
        assert learned[one].isdisjoint(validated[other]), (one, other)


def test_the_sources_are_those_that_the_phases_use(make_session, make_recipe):
    """The checks above hold for the warm-up, for training and for validation."""
    recipe = make_recipe()
    session = make_session(recipe)
    assert rows_for(session, session.trained["main"], "demonstrations").sources[0].tasks is (
        session.warmup_tasks
    )
    assert session.warmup_tasks.env.config.solvable is False
    assert session.warmup_tasks.env.config.frozen_probability == 0.6
    assert session.curriculum.visits(0)[0].task == GeneratedTasks(
        session.runner.env, "train", recipe.seed
    ).task(0)
    assert session.runner.env.config.start == "random"
    assert session.eval_runner.env.config.start == "corner"
    assert session.validation.env is session.eval_runner.env
    assert session.validation_states.env is session.runner.env


def test_one_map_is_in_every_split_and_counts_as_seen(make_session, make_recipe):
    """Lakes without holes are one problem: no test of it is ever unseen."""
    session = make_session(make_recipe("env.options.frozen_probability=1.0"))
    assert session.validation.seen


def test_images_are_seen_through():
    """The check has teeth: a mirror image and another start are the same map to it."""
    rows = ("SFFH", "FFFF", "FHFF", "FFFG")
    same = [
        tuple("".join(column) for column in zip(*rows, strict=True)),
        tuple(row[::-1] for row in rows),
        rows[::-1],
        ("FFFH", "FFSF", "FHFF", "FFFG"),
    ]
    assert all(images(other) == images(rows) for other in same)
    assert images(("SFFH", "FFFF", "FFHF", "FFFG")).isdisjoint(images(rows))
