"""An agent: a role, what it is told, what it remembers, which policy answers, how it is sampled.

Owns prompts as messages and the parsing of answers. Knows nothing of tokens, engines or rewards.
Model text is hostile input: it parses to a value or to a named failure, and is never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import Field

from turnwise.envs.base import Observation
from turnwise.envs.tool_calls import calls_in
from turnwise.errors import ConfigError
from turnwise.settings import Settings
from turnwise.types import Failure, Message, Sampling, ToolChat

HistoryRule = Literal["full", "last_n", "observation"]
AnswerRule = Literal["tag", "whole"]
Prompt: TypeAlias = tuple[Message, ...] | ToolChat | str
"""Messages for the chat template, with tools or without, or text that reaches the model as it
stands."""
LEGAL = "legal actions: "
"""Begins the line of legal words that `AgentConfig.show_legal` adds to an observation."""
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class AgentConfig(Settings):
    """How one role is prompted and sampled."""

    role: str = "player"
    """The environment's name of the role."""
    policy: str = "main"
    """Which policy answers for it."""
    system: str = ""
    """The system message; empty for none."""
    history: HistoryRule = "observation"
    """What of the past is in the prompt: everything, the last `last_n` turns, or nothing."""
    last_n: int = Field(default=2, ge=1)
    """How many past turns `history = "last_n"` keeps."""
    show_legal: bool = False
    """Whether each observation ends with the words that may be answered there."""
    answer: AnswerRule = "tag"
    """What of a reply is the action: the words in the last `<answer>` tag, or the whole reply."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of training sampling."""
    max_tokens: int = Field(default=64, ge=1)
    """Limit of one completion, in tokens, the end token included."""

    def sampling(self, *, greedy: bool = False) -> Sampling:
        """Return the sampling of a call, at temperature 0 if `greedy`."""
        temperature = 0.0 if greedy else self.temperature
        return Sampling(temperature=temperature, max_tokens=self.max_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One past turn as its agent remembers it: what it saw and what it said.

    `messages` are what it saw, where that was not one message of the user's.
    """

    observation: str
    reply: str
    messages: tuple[Message, ...] = ()


def observation_text(config: AgentConfig, observation: Observation) -> str:
    r"""Return what the agent is shown of an observation: its text, and legal words if asked for.

    Raw text, and observations without legal words, stay as they are.

    Example:
        >>> seen = Observation(text="you r0c0", legal=("LEFT", "DOWN"))
        >>> observation_text(AgentConfig(show_legal=True), seen)
        'you r0c0\nlegal actions: LEFT DOWN'
    """
    legal = observation.legal
    if not config.show_legal or not legal or observation.raw:
        return observation.text
    between = " | " if any(len(word.split()) > 1 for word in legal) else " "
    return f"{observation.text}\n{LEGAL}{between.join(legal)}"


def messages_for(
    config: AgentConfig, past: Sequence[Exchange], observation: str
) -> tuple[Message, ...]:
    """Return the messages of a call, as `config.history` says.

    Example:
        >>> past = [Exchange(observation="you r0c0", reply="<answer> DOWN </answer>")]
        >>> [m.role for m in messages_for(AgentConfig(history="full"), past, "you r1c0")]
        ['user', 'assistant', 'user']
    """
    kept = {"full": list(past), "last_n": list(past[-config.last_n :]), "observation": []}
    messages = [Message(role="system", content=config.system)] if config.system else []
    for exchange in kept[config.history]:
        messages += exchange.messages or [Message(role="user", content=exchange.observation)]
        messages.append(Message(role="assistant", content=exchange.reply))
    return (*messages, Message(role="user", content=observation))


def prompt_for(config: AgentConfig, past: Sequence[Exchange], observation: Observation) -> Prompt:
    """Return what the agent's model continues with its reply to `observation`.

    Raises:
        ConfigError: if the agent has a system message that the observation leaves no place for.

    Example:
        >>> prompt_for(AgentConfig(), (), Observation(text="2+2=", legal=(), raw=True))
        '2+2='
        >>> prompt_for(AgentConfig(), (), Observation(text="2+2?", legal=()))[0].role
        'user'
    """
    opens = observation.messages[:1]
    if config.system and (observation.raw or (opens and opens[0].role == "system")):
        own = "raw text" if observation.raw else "a system message of its own"
        raise ConfigError(
            f"agents.{config.role}.system = {config.system[:40]!r} has no place: the prompt is "
            f"{own}; leave `system` out"
        )
    if observation.raw:
        return observation.text
    messages = messages_for(config, past, observation_text(config, observation))
    if observation.messages:
        messages = (*messages[:-1], *observation.messages)
    return ToolChat(messages=messages, tools=observation.tools) if observation.tools else messages


def demonstration(description: str, action: str, answer: AnswerRule = "tag") -> str:
    """Return the reply that warm-up teaches: a thought that describes, and an answer.

    Where the whole reply is the answer there is no thought. A call of a tool is no answer.

    Example:
        >>> demonstration("LEFT edge", "DOWN")
        '<think> LEFT edge </think> <answer> DOWN </answer>'
    """
    if answer == "whole":
        return action
    thought = f"<think> {description} </think> " if description else ""
    if calls_in(action):
        return f"{thought}{action}"
    return f"{thought}<answer> {action} </answer>"


def parse_answer(text: str, legal: Sequence[str], answer: AnswerRule = "tag") -> str | Failure:
    """Return the action that `text` answers with, or the failure.

    The last `<answer>` counts; case and surrounding blanks do not. Without `legal` words any text
    is returned as it is, blanks at the ends dropped.

    Example:
        >>> parse_answer("<think> hm </think> <answer> down </answer>", ("LEFT", "DOWN"))
        'DOWN'
        >>> parse_answer("DOWN", ("DOWN",)).kind
        'parse'
        >>> parse_answer("x = 1", (), "whole")
        'x = 1'
    """
    found = [text] if answer == "whole" else _ANSWER.findall(text)
    if not found:
        return Failure(kind="parse", message="no <answer>...</answer> in the reply")
    word = found[-1].strip()
    if not legal:
        return word
    for action in legal:
        if word.casefold() == action.casefold():
            return action
    return Failure(kind="illegal_action", message=f"{word[:40]!r} is none of {', '.join(legal)}")
