"""The stages of a run, in their order, and what is done between them where there are adapters.

Provides `make_base` and `run_stages`: all weights are trained and become the bases of adapters; the
warm-up's adapter is merged into its base and a fresh one begins; the chosen adapter is saved for
users. Each step can be killed at any instant and done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing

from turnwise.engines import RemoteConfig, close_engine
from turnwise.errors import ModelError, RunError
from turnwise.policies import PolicyConfig
from turnwise.policies.folders import replaced_folder
from turnwise.recipe.schema import Recipe
from turnwise.runs import Run
from turnwise.runs.checkpoints import policy_folder
from turnwise.runs.metric_names import PRETRAIN, TRAIN, WARMUP
from turnwise.seeding import generator
from turnwise.trainers import Plan, Resumed, Session, resume, warm_up
from turnwise.trainers.gc import frozen
from turnwise.trainers.table import TRAINERS

EXPLORATION = "exploration"
"""The phase in which a curriculum looks around, as the display names it."""
SFT, GRPO = "sft", "grpo"
"""The names of the adapters in a run's `adapters` folder, by the stage that trained them last."""


def without_adapters(recipe: Recipe) -> Recipe:
    """Return the recipe as it is before adapters exist: all weights of their bases are trained.

    Policies whose adapters stand on one base become one policy, named after the first of them.
    """
    names = dict.fromkeys(recipe.base_of(name) for name in recipe.policies)
    return recipe.model_copy(
        update={
            "policies": {n: _whole(recipe.policies[n]) for n in names},
            "agents": {
                role: agent.model_copy(update={"policy": recipe.base_of(agent.policy)})
                for role, agent in recipe.agents.items()
            },
        }
    )


def _whole(policy: PolicyConfig | RemoteConfig) -> PolicyConfig | RemoteConfig:
    """Return a policy's config without an adapter."""
    return policy.model_copy(update={"lora": None}) if policy.kind == "weights" else policy


def make_base(
    recipe: Recipe, folder: Run, assemble: Callable[[Recipe], Session], *, resumed: bool
) -> bool:
    """Train all weights if the recipe asks for it, and keep them as the bases of adapters.

    Returns:
        False if the run was asked to stop before that.
    """
    if recipe.pretrain is None or not recipe.pretrains or folder.bases.is_dir():
        return True
    session = assemble(without_adapters(recipe))
    for trained in session.trained.values():
        if trained.policy.has_adapter:
            raise ModelError(
                f"model = {trained.policy.config.model!r} is an adapter, whose base [pretrain] "
                "would not change: leave [pretrain] out, or give a whole model"
            )
    with closing(session.metrics), ExitStack() as stack:
        stack.callback(close_engine, session.engine)
        back = resume(session) if resumed else None
        if not warm_up(session, recipe.pretrain, back, phase=PRETRAIN):
            return False
        session.group.from_first(lambda: _save_bases(session, folder))
    return True


def _save_bases(session: Session, folder: Run) -> None:
    """Keep the policies of a session as the bases of adapters."""
    with replaced_folder(folder.bases) as bases:
        for name, trained in session.trained.items():
            trained.policy.save(bases / name)


@frozen()
def run_stages(session: Session, recipe: Recipe, plan: Plan, *, resumed: bool) -> bool:
    """Go through the stages that are left; return False if the run was asked to stop.

    Raises:
        RunError: if the latest checkpoint is of a stage that the recipe does not have any more.
    """
    goes_on = resumed or recipe.pretrains
    back = resume(session, based_on=PRETRAIN) if goes_on else None
    _explore(session, counted=back is None)
    if session.asked_to_stop():
        return False
    left = [name for name in recipe.stages if name in STAGES]
    if back is not None and STAGE_OF.get(back.phase) not in left:
        raise RunError(
            f"checkpoint '{back.folder}' was made in the stage {back.phase!r}, which is none of "
            f"stages = {list(recipe.stages)}: restore the recipe '{session.run.recipe}' as it was"
        )
    done = recipe.trainer.iterations
    if back is not None and (back.phase, back.step) == (TRAIN, done):
        session.note(
            f"the run has done its {done} iterations, and only tests what it has learned; a larger "
            "trainer.iterations trains on"
        )
    for name in left[left.index(STAGE_OF[back.phase]) if back else 0 :]:
        if not STAGES[name](session, recipe, plan, back):
            return False
        back = None
    keep_adapters(session)
    return True


def _explore(session: Session, *, counted: bool) -> None:
    """Let the curriculum look around: in process 0, from which the others have what it found."""
    began = time.perf_counter()

    def goes_on(done: int, total: int) -> bool:
        if not done:
            session.progress.begin(EXPLORATION, done=0, total=total)
        session.progress.advance(done, {})
        return not session.stop.requested

    draws = session.runner.draws("train").of_step
    found = session.group.from_first(lambda: session.curriculum.explore(draws, goes_on))
    session.curriculum.begin(found)
    if counted and found:
        seconds = session.group.broadcast(time.perf_counter() - began)
        session.count(seconds=seconds, explored_steps=float(found["steps"]))


def _warm_up(session: Session, recipe: Recipe, plan: Plan, back: Resumed | None) -> bool:
    """Warm up all trained policies, where the recipe asks for it."""
    if recipe.warmup is None or not recipe.has("warmup"):
        return True
    return warm_up(
        session,
        recipe.warmup,
        back,
        first=recipe.rows_before_warmup,
        minutes=recipe.trainer.minutes,
    )


def _train(session: Session, recipe: Recipe, plan: Plan, back: Resumed | None) -> bool:
    """Keep the weights that training begins with, and run the recipe's trainer."""
    if back is None:
        if recipe.trainer.iterations:
            begin_adapters(session)
        session.save_start()
    if not recipe.trainer.iterations:
        return True
    return TRAINERS[recipe.trainer.kind].load()(session, plan, back)


STAGES: dict[str, Callable[[Session, Recipe, Plan, Resumed | None], bool]] = {
    "warmup": _warm_up,
    "trainer": _train,
}
"""Stage -> what it does; `pretrain` comes before there is a session (`make_base`)."""
STAGE_OF = {WARMUP: "warmup", TRAIN: "trainer"}
"""Phase of a checkpoint -> its stage."""


def begin_adapters(session: Session) -> None:
    """Save the warm-up's adapters, merge them and begin fresh ones, where a policy asks for it."""
    for name, trained in session.trained.items():
        lora = trained.policy.config.lora
        if lora is None or not lora.merge_warmup:
            continue
        place = session.run.adapters / name / SFT
        session.save_policy(trained, place)
        drawn = generator(session.seed, "fresh adapter", name)
        trained.policy.merge_adapter(place, int(drawn.integers(2**31)))
        session.new_weights(trained)


def keep_adapters(session: Session) -> None:
    """Save the finished run's best adapters, or its latest, in its `adapters` folder."""
    if not session.group.leads:
        return
    chosen = session.checkpoints.best() or session.checkpoints.latest().checkpoint
    adapted = {n: each for n, each in session.trained.items() if each.policy.has_adapter}
    if not adapted or chosen is None:
        return
    session.checkpoints.check(chosen)
    for name, trained in adapted.items():
        trained.policy.load_weights(policy_folder(chosen.path, name))
        last = SFT if chosen.phase == WARMUP else GRPO
        trained.policy.save(session.run.adapters / name / last)
