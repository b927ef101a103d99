"""The stages of a run, in their order, and what is done between them where there are adapters.

Owns the passages: all weights are trained and become the run's base; the warm-up's adapter is
merged into it and a fresh one begins; the chosen adapter is kept where people look for it. Each can
be killed at any instant and done again. Knows nothing of how sessions are assembled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from turnwise.errors import ModelError
from turnwise.noise import generator
from turnwise.recipe import Recipe
from turnwise.runs import Run
from turnwise.runs.names import PRETRAIN, WARMUP
from turnwise.trainers import Plan, Session, resume, train_grpo, warm_up
from turnwise.trainers.collector import settled

SFT, GRPO = "sft", "grpo"
"""What the adapters in a run's `adapters` folder are called, after what trained them last."""


def without_adapters(recipe: Recipe) -> Recipe:
    """Return the recipe as it is before adapters exist: all weights are trained."""
    whole = {
        name: config.model_copy(update={"lora": None}) for name, config in recipe.policies.items()
    }
    return recipe.model_copy(update={"policies": whole})


def make_base(
    recipe: Recipe, folder: Run, assemble: Callable[[Recipe], Session], *, resumed: bool
) -> bool:
    """Train all weights if the recipe asks for it, and keep them as the run's base.

    Returns:
        False if the run was asked to stop before that.
    """
    if recipe.pretrain is None or folder.base.is_dir():
        return True
    session = assemble(without_adapters(recipe))
    if session.policy.has_adapter:
        raise ModelError(
            f"model = {session.policy.config.model!r} is an adapter, whose base [pretrain] would "
            "not change: leave [pretrain] out, or give a whole model"
        )
    with closing(session.metrics):
        back = resume(session) if resumed else None
        if not warm_up(session, recipe.pretrain, back, phase=PRETRAIN):
            return False
        session.policy.save(folder.base)
    return True


@settled()
def run_phases(session: Session, recipe: Recipe, plan: Plan, *, resumed: bool) -> bool:
    """Run the phases that are left and have steps; return False if the run was asked to stop."""
    goes_on = resumed or recipe.pretrain is not None
    back = resume(session, based_on=PRETRAIN) if goes_on else None
    if back is None or back.phase == WARMUP:
        warmup, first = recipe.warmup, recipe.rows_before_warmup
        if warmup and warmup.steps and not warm_up(session, warmup, back, first=first):
            return False
        if recipe.trainer.iterations:
            begin_adapter(session)
        session.policy.save(session.start_folder)
        back = None
    if recipe.trainer.iterations and not train_grpo(session, plan, back):
        return False
    keep_adapter(session)
    return True


def begin_adapter(session: Session) -> None:
    """Save the warm-up's adapter, merge it into the base and begin a fresh one, if so asked."""
    lora = session.policy.config.lora
    if lora is None or not lora.merge_warmup:
        return
    place = session.run.adapters / SFT
    session.policy.save(place)
    drawn = generator(session.seed, "fresh adapter", session.policy.name)
    session.policy.merge_adapter(place, int(drawn.integers(2**31)))
    session.new_weights()


def keep_adapter(session: Session) -> None:
    """Save the finished run's best adapter, or its latest, in its `adapters` folder."""
    chosen = session.checkpoints.best() or session.checkpoints.latest().checkpoint
    if session.policy.has_adapter and chosen is not None:
        session.checkpoints.check(chosen)
        session.policy.load_weights(chosen.path / "policy")
        session.policy.save(session.run.adapters / (SFT if chosen.phase == WARMUP else GRPO))
