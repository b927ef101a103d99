"""Train a model of the Hugging Face hub with adapters, then play with them without turnwise.

    python examples/04_a_real_model.py                     # Qwen/Qwen3-0.6B, which is downloaded
    python examples/04_a_real_model.py MODEL               # another Qwen3: a hub name or directory
    python examples/04_a_real_model.py MODEL preset=smoke  # two steps, only to see that all works

A GPU is taken where there is one; a CPU is enough to see it run, not to train it.
"""

from __future__ import annotations

import sys

from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

import turnwise as tw
from turnwise.tasks import GeneratedTasks


def main(model: str = "Qwen/Qwen3-0.6B", *settings: str) -> None:
    recipe = tw.load_recipe("frozen-lake-qwen3-0.6b", [f"policies.main.model={model}", *settings])
    outcome = tw.train(recipe)
    assert outcome.scores is not None, "stopped before the end: turnwise resume goes on"
    before, after = outcome.scores.baselines["warmup"], outcome.scores.score
    print(f"lakes crossed: {before:.2f} after the warm-up, {after:.2f} after training")

    base = AutoModelForCausalLM.from_pretrained(model)
    adapters = outcome.run / "adapters" / "main"
    warmed_up = PeftModel.from_pretrained(base, adapters / "sft").merge_and_unload()
    player = PeftModel.from_pretrained(warmed_up, adapters / "grpo")
    tokenizer = AutoTokenizer.from_pretrained(adapters / "grpo")

    env = tw.make_env("frozen-lake", size=4)
    lake = env.observe(env.reset(GeneratedTasks(env, "test", seed=0).task(0)), "player").text
    agent = recipe.agents["player"]
    messages = [{"role": "system", "content": agent.system}, {"role": "user", "content": lake}]
    prompt = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    reply = player.generate(**prompt, max_new_tokens=agent.max_tokens, do_sample=False)[0]
    said = tokenizer.decode(reply[prompt["input_ids"].shape[1] :])
    print(f"asked of a new lake, it says:\n{said}")


if __name__ == "__main__":
    main(*sys.argv[1:])
