"""The code of a model card that loads a policy and asks it once, without turnwise.

Provides `Example`, `example_for` and `usage_code`. The code needs transformers, and PEFT for an
adapter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.agents import AgentConfig, prompt_for
from turnwise.app.card.files import HERE
from turnwise.app.card.weights import PublishedPolicy
from turnwise.envs.base import Env
from turnwise.errors import ConfigError
from turnwise.render import RenderConfig, Renderer
from turnwise.rollout import first_states
from turnwise.tasks import GeneratedTasks
from turnwise.types import Decoding


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A prompt of the run's own env, and how its reply is sampled.

    `messages` are chat messages, or `text` is the prompt as it stands. `stop_ids` end a reply.
    """

    messages: tuple[dict[str, str], ...] = ()
    text: str = ""
    tools: tuple[str, ...] = ()
    template_options: dict[str, Any] = field(default_factory=dict)
    max_tokens: int
    temperature: float
    decoding: Decoding
    stop_ids: tuple[int, ...]
    pad_id: int


def example_for(
    folder: Path, policy: PublishedPolicy, agents: Sequence[AgentConfig], env: Env[Any], **how: Any
) -> Example:
    """Return the prompt of the first test task in which a role of a policy has a turn.

    Args:
        folder: the card's folder, with the policy's files.
        policy: the policy.
        agents: the agents that it plays for; the first one is shown.
        env: the env of the evaluation.
        **how: `seed` of the tasks and `decoding` of the scores.

    Raises:
        ConfigError: if the prompt shows media.
        EnvError: if the role has no turn.
    """
    from transformers import AutoTokenizer

    agent = agents[0]
    (seen, *_) = first_states(env, GeneratedTasks(env, "test", how["seed"]).take(8), agent.role)
    prompt = prompt_for(agent, (), seen)
    if prompt.media:
        raise ConfigError(
            f"role {agent.role!r} of env {env.name!r} is shown media, which the code of a card "
            "cannot hold: write the card of a run whose observations are text"
        )
    tokenizer = AutoTokenizer.from_pretrained(folder / policy.folder)
    options = policy.config.template_options
    stops = generation_stops(folder, policy)
    renderer = Renderer(tokenizer, RenderConfig(template_options=options), extra_stop_ids=stops)
    return Example(
        messages=tuple(message.as_dict() for message in renderer.shown(prompt.messages)),
        text=prompt.text or "",
        tools=prompt.tools,
        template_options=dict(options),
        max_tokens=agent.max_tokens,
        temperature=agent.temperature,
        decoding=how["decoding"],
        stop_ids=tuple(sorted(renderer.stop_ids)),
        pad_id=renderer.pad_id,
    )


def generation_stops(folder: Path, policy: PublishedPolicy) -> tuple[int, ...]:
    """Return the end ids of the model's generation config, if there is one.

    That of a base on the hub is in the hub's cache, from which the run has loaded the base.
    """
    from huggingface_hub import try_to_load_from_cache

    name = "generation_config.json"
    cached = try_to_load_from_cache(policy.base, name) if policy.base else None
    file = folder / (policy.base_folder or policy.folder) / name
    file = Path(cached) if isinstance(cached, str) else file
    eos = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") if file.is_file() else ()
    return (eos,) if isinstance(eos, int) else tuple(eos or ())


def usage_code(policy: PublishedPolicy, example: Example) -> str:
    """Return Python code that prints a policy's reply to an example."""
    lines = ["from peft import PeftModel"] if policy.is_adapter else []
    lines += ["from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig", ""]
    lines += [HERE]
    own = _place(policy.folder)
    code = ", trust_remote_code=True" if policy.config.trust_remote_code else ""
    lines += [f"tokenizer = AutoTokenizer.from_pretrained({own}{code})"]
    if policy.is_adapter:
        base = _place(policy.base_folder) if policy.base_folder else _literal(policy.base)
        lines += [
            f"model = AutoModelForCausalLM.from_pretrained({base}{code})",
            f"model = PeftModel.from_pretrained(model, {own})",
        ]
    else:
        lines += [f"model = AutoModelForCausalLM.from_pretrained({own})"]
    return "\n".join([*lines, "", *_prompt_lines(example), *_reply_lines(example)]) + "\n"


def _place(folder: str) -> str:
    return f'f"{{here}}/{folder}"' if folder else "here"


def _prompt_lines(example: Example) -> list[str]:
    if not example.messages:
        return [
            f"text = {_literal(example.text)}",
            'prompt = tokenizer(text, return_tensors="pt").to(model.device)',
        ]
    lines = ["messages = ["]
    for message in example.messages:
        said = _literal(message["content"])
        lines += [f'    {{"role": {_literal(message["role"])}, "content": {said}}},']
    lines += ["]"]
    if example.tools:
        lines += [f"tools = {[json.loads(tool) for tool in example.tools]!r}"]
    given = ["messages", *(["tools=tools"] if example.tools else [])]
    given += ["add_generation_prompt=True", 'return_tensors="pt"', "return_dict=True"]
    given += [f"{name}={value!r}" for name, value in example.template_options.items()]
    return [
        *lines,
        "prompt = tokenizer.apply_chat_template(",
        f"    {', '.join(given)}",
        ").to(model.device)",
    ]


def _literal(text: str) -> str:
    """Return a Python string of one line, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _reply_lines(example: Example) -> list[str]:
    how = "do_sample=False"
    if example.decoding == "sampled":
        how = f"do_sample=True, temperature={example.temperature:g}, top_k=0, top_p=1.0"
    return [
        "model.generation_config = GenerationConfig(  # in place of the base model's own",
        f"    max_new_tokens={example.max_tokens}, {how},",
        f"    eos_token_id={list(example.stop_ids)}, pad_token_id={example.pad_id},",
        ")",
        "reply = model.generate(**prompt)",
        'print(tokenizer.decode(reply[0, prompt["input_ids"].shape[1] :]))',
    ]
