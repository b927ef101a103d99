"""An agent: a role with its prompts, its history, its reply format and its policy.

Provides `AgentConfig`, prompts as messages, and demonstrations. Knows nothing of tokens, engines or
rewards. Replies are read by the agent's reply format (`turnwise.formats`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator, model_validator

from turnwise.envs.base import Observation
from turnwise.envs.tools.calls import calls_in
from turnwise.errors import ConfigError, unknown_name
from turnwise.formats import REPLY_FORMATS, ReplyFormat
from turnwise.settings import Settings
from turnwise.types import Media, Message, Prompt, Sampling

LAST_N = 2
"""The past turns that are kept where their number is not given."""
HistoryRule = Literal["full", "last_n", "observation"]
InvalidRule = Literal["end", "continue"]
LEGAL = "legal actions: "
"""Begins the line of legal words that `AgentConfig.show_legal` adds to an observation."""


class AgentConfig(Settings):
    """The prompts, history, reply format and sampling of one role."""

    role: str = "player"
    """The env's name of the role. Leave it out in a recipe, where the section names the role."""
    policy: str = "main"
    """Which policy answers for it."""
    system: str = ""
    """The system message; empty for none."""
    history: HistoryRule = "observation"
    """The part of the past in the prompt: everything, the last `last_n` turns, or nothing."""
    last_n: int | None = Field(default=None, ge=1)
    """The number of past turns that `history = "last_n"` keeps; None is 2."""
    show_legal: bool = False
    """Whether each observation ends with the words that may be answered there."""
    reply: str = "tags"
    """The form of a reply with a thought and an action: `tags`, `<think> .. </think> <answer> ..
    </answer>`; `lines`, a line `THINK: ..` and lines `ACT: ..`; `program`, a fenced block, or the
    whole reply as a program; or `whole`, the whole reply is the action."""
    invalid_reply: InvalidRule = "end"
    """The effect of a reply that is not an action: `end` ends the episode; `continue` asks the
    agent again with the same observation. The env is not stepped, the turn has the reward component
    `invalid` = 1 and counts against the cap on turns (`max_turns`). A full context always ends the
    episode."""
    invalid_limit: int | None = Field(default=None, ge=1)
    """With `invalid_reply = "continue"`, the number of such replies in a row that nevertheless end
    the episode; None is no limit."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of training sampling."""
    max_tokens: int = Field(default=64, ge=1)
    """Limit of one completion, in tokens, the end token included."""

    @field_validator("reply")
    @classmethod
    def _reply_is_known(cls, name: str) -> str:
        if name not in REPLY_FORMATS:
            raise unknown_name("reply format", name, REPLY_FORMATS)
        return name

    @model_validator(mode="after")
    def _check_numbers(self) -> AgentConfig:
        if self.invalid_limit is not None and self.invalid_reply == "end":
            raise ConfigError(
                f"invalid_limit = {self.invalid_limit} needs invalid_reply = 'continue': without "
                "it the first invalid reply ends the episode; set it, or leave invalid_limit out"
            )
        if self.last_n is not None and self.history != "last_n":
            raise ConfigError(
                f"last_n = {self.last_n} needs history = 'last_n', got {self.history!r}: set it, "
                "or leave last_n out"
            )
        return self

    @property
    def kept_turns(self) -> int:
        """The number of past turns that `history = "last_n"` keeps."""
        return LAST_N if self.last_n is None else self.last_n

    @property
    def reply_format(self) -> ReplyFormat:
        """The format in which the agent's replies are written and read."""
        return REPLY_FORMATS[self.reply]

    def sampling(self, *, greedy: bool = False) -> Sampling:
        """Return the sampling of a call, at temperature 0 if `greedy`."""
        temperature = 0.0 if greedy else self.temperature
        return Sampling(temperature=temperature, max_tokens=self.max_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One past turn as its agent remembers it: what it saw and what it said.

    `messages` are what it saw, where that was not one message of the user's; `media` what it saw
    beside text.
    """

    observation: str
    reply: str
    messages: tuple[Message, ...] = ()
    media: tuple[Media, ...] = ()


def observation_text(config: AgentConfig, observation: Observation) -> str:
    r"""Return what the agent is shown of an observation: its text, and legal words if asked for.

    Raw text, and observations without legal words, stay as they are.

    Example:
        >>> seen = Observation(text="you r0c0", legal_actions=("LEFT", "DOWN"))
        >>> observation_text(AgentConfig(show_legal=True), seen)
        'you r0c0\nlegal actions: LEFT DOWN'
    """
    legal = observation.legal_actions
    if not config.show_legal or not legal or observation.raw:
        return observation.text
    between = " | " if any(len(word.split()) > 1 for word in legal) else " "
    return f"{observation.text}\n{LEGAL}{between.join(legal)}"


def outcome_text(rewards: Mapping[str, float], after: str | None) -> str:
    r"""Return what is said of the outcome of a turn: its rewards, and what is seen next or the end.

    Example:
        >>> outcome_text({"goal": 1.0, "fall": 0.0}, None)
        'reward goal 1\nend'
    """
    lines = [f"reward {name} {value:.3g}" for name, value in rewards.items() if value]
    return "\n".join([*lines, "end" if after is None else after])


def messages_for(
    config: AgentConfig, past: Sequence[Exchange], observation: str
) -> tuple[Message, ...]:
    """Return the messages of a call, as `config.history` says.

    Example:
        >>> past = [Exchange(observation="you r0c0", reply="<answer> DOWN </answer>")]
        >>> [m.role for m in messages_for(AgentConfig(history="full"), past, "you r1c0")]
        ['user', 'assistant', 'user']
    """
    messages = [Message(role="system", content=config.system)] if config.system else []
    for exchange in _remembered(config, past):
        messages += exchange.messages or [Message(role="user", content=exchange.observation)]
        messages.append(Message(role="assistant", content=exchange.reply))
    return (*messages, Message(role="user", content=observation))


def _remembered(config: AgentConfig, past: Sequence[Exchange]) -> Sequence[Exchange]:
    """Return the exchanges that `config.history` leaves in the prompt."""
    if config.history == "observation":
        return ()
    return past if config.history == "full" else past[-config.kept_turns :]


def prompt_for(config: AgentConfig, past: Sequence[Exchange], observation: Observation) -> Prompt:
    """Return what the agent's model continues with its reply to `observation`.

    Raises:
        ConfigError: if the agent has a system message that the observation leaves no place for.

    Example:
        >>> prompt_for(AgentConfig(), (), Observation(text="2+2=", legal_actions=(), raw=True)).text
        '2+2='
        >>> prompt_for(AgentConfig(), (), Observation(text="2+2?", legal_actions=())).messages
        (Message(role='user', content='2+2?'),)
    """
    opens = observation.messages[:1]
    if config.system and (observation.raw or (opens and opens[0].role == "system")):
        own = "raw text" if observation.raw else "a system message of its own"
        raise ConfigError(
            f"agents.{config.role}.system = {config.system[:40]!r} has no place: the prompt is "
            f"{own}; leave `system` out"
        )
    if observation.raw:
        return Prompt(text=observation.text, media=observation.media)
    messages = messages_for(config, past, observation_text(config, observation))
    if observation.messages:
        messages = (*messages[:-1], *observation.messages)
    media = (one for exchange in _remembered(config, past) for one in exchange.media)
    return Prompt(messages=messages, tools=observation.tools, media=(*media, *observation.media))


def demonstration(agent: AgentConfig, description: str, action: str) -> str:
    """Return the reply that warm-up teaches: a thought that describes, and the action.

    A call of a tool stands in a reply as it is, in every format.

    Example:
        >>> demonstration(AgentConfig(), "LEFT edge", "DOWN")
        '<think> LEFT edge </think> <answer> DOWN </answer>'
    """
    return agent.reply_format.render(description, action, called=bool(calls_in(action)))
