"""Policies with few parameters: a table for discrete observations, a linear map for vectors.

Provides `policy_for`, which chooses between `TablePolicy` and `LinearPolicy` by the spaces of a
Gymnasium env. Policies are deterministic (arXiv:2511.21928).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from turnwise.errors import ConfigError
from turnwise.search.space import Params, ParamSpace

LIMIT, DECIMALS = 60, 1
"""Weights are from -6 to 6 with one decimal."""
MOST_PARAMS = 2000
"""The largest number of parameters of a policy that is searched."""
Actor = Callable[[Any], Any]
"""From an observation to the action."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TablePolicy:
    """One action for each observation.

    `state_labels` and `action_labels` are other numbers of states and actions, by the env's own
    from 0; empty where they are equal.

    Example:
        >>> policy = TablePolicy(states=3, actions=2)
        >>> policy.actor((1, 0, 1))(2)
        1
    """

    states: int
    actions: int
    first_state: int = 0
    first_action: int = 0
    state_labels: tuple[int, ...] = ()
    action_labels: tuple[int, ...] = ()

    @property
    def space(self) -> ParamSpace:
        """The parameters: the number of an action, for each observation."""
        return ParamSpace(count=self.states, low=0, high=self.actions - 1, choices=True)

    def actor(self, params: Params) -> Actor:
        """Return the function from an observation to an action."""
        table = [value + self.first_action for value in self.actions_of(params)]
        first = self.first_state
        return lambda seen: table[int(seen) - first]

    def batch(self, params: Params) -> Actor:
        """Return the function from observations [envs] to actions [envs]."""
        table = np.asarray(self.actions_of(params)) + self.first_action
        return lambda seen: table[np.asarray(seen) - self.first_state]

    def relabelled(self, rng: np.random.Generator) -> TablePolicy:
        """Return the policy with states and actions numbered anew at random."""
        return replace(
            self,
            state_labels=tuple(rng.permutation(self.states).tolist()),
            action_labels=tuple(rng.permutation(self.actions).tolist()),
        )

    def actions_of(self, params: Params) -> Params:
        """Return the env's own number of the action in each of its states, from 0."""
        if not self.state_labels:
            return params
        own = {label: action for action, label in enumerate(self.action_labels)}
        return tuple(own[params[label]] for label in self.state_labels)

    def own(self, params: Params) -> Params:
        """Return the parameters of the same policy by the env's own numbers."""
        return self.actions_of(params)

    def params_of(self, actions: Params) -> Params:
        """Return the parameters of the env's own actions [states], the inverse of `actions_of`."""
        if not self.state_labels:
            return actions
        named = sorted(zip(self.state_labels, actions, strict=True))
        return tuple(self.action_labels[action] for _, action in named)

    def labels(self, seen: Any, action: Any) -> tuple[int, int]:
        """Return the numbers of a state and of an action, as the parameters count them."""
        state, number = int(seen) - self.first_state, int(action) - self.first_action
        if not self.state_labels:
            return state, number
        return self.state_labels[state], self.action_labels[number]

    def described(self) -> str:
        """Return what the parameters mean, in words."""
        return (
            f"a table: params[s] is the action that is taken in state s, for the {self.states} "
            f"states 0 to {self.states - 1}"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearPolicy:
    """Outputs that are linear in the observation; the largest chooses a discrete action.

    The first `inputs * outputs` parameters are the weights, those of the first input first; the
    last `outputs` are the biases. Continuous outputs are clipped to the action's limits, float64
    [outputs].

    Example:
        >>> policy = LinearPolicy(inputs=2, outputs=2)
        >>> policy.actor((10, 0, 0, 10, 0, 5))(np.array([0.2, 0.6]))  # 0.2 against 0.6 + 0.5
        1
    """

    inputs: int
    outputs: int
    limits: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    first_action: int = 0
    shape: tuple[int, ...] = ()
    dtype: Any = np.float32

    @property
    def space(self) -> ParamSpace:
        """The parameters: weights and biases from -6 to 6 with one decimal."""
        count = (self.inputs + 1) * self.outputs
        return ParamSpace(count=count, low=-LIMIT, high=LIMIT, decimals=DECIMALS)

    def actor(self, params: Params) -> Actor:
        """Return the function from an observation to an action."""
        weights, bias = self._parts(params)
        if self.limits is None:
            return lambda seen: int((np.ravel(seen) @ weights + bias).argmax()) + self.first_action
        low, high = self.limits
        return lambda seen: (
            np.clip(np.ravel(seen) @ weights + bias, low, high)
            .astype(self.dtype)
            .reshape(self.shape)
        )

    def batch(self, params: Params) -> Actor:
        """Return the function from observations [envs, ...] to actions [envs, ...]."""
        weights, bias = self._parts(params)

        def act(seen: NDArray[Any]) -> NDArray[Any]:
            outputs = seen.reshape(len(seen), -1) @ weights + bias
            if self.limits is None:
                return outputs.argmax(axis=1) + self.first_action
            return np.clip(outputs, *self.limits).astype(self.dtype).reshape(-1, *self.shape)

        return act

    def own(self, params: Params) -> Params:
        """Return the parameters, which are never numbered anew."""
        return params

    def described(self) -> str:
        """Return what the parameters mean, in words."""
        weights = self.inputs * self.outputs
        end = "the output is the action, cut to its limits"
        if self.limits is None:
            end = "the action with the largest output is taken"
        many = "one output" if self.outputs == 1 else f"{self.outputs} outputs"
        return (
            f"linear: {many} from {self.inputs} inputs. params[i * {self.outputs} + j] is the "
            f"weight of input i in output j, and params[{weights} + j] the bias of output j; {end}"
        )

    def _parts(self, params: Params) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the weights [inputs, outputs] and the biases [outputs]."""
        values = self.space.values(params)
        cut = self.inputs * self.outputs
        return values[:cut].reshape(self.inputs, self.outputs), values[cut:]


Policy = TablePolicy | LinearPolicy


def policy_for(observations: spaces.Space[Any], actions: spaces.Space[Any], name: str) -> Policy:
    """Return the policy that fits the spaces of an env.

    Args:
        observations: the space of observations.
        actions: the space of actions.
        name: of the task, for the message.

    Raises:
        ConfigError: if no policy fits.

    Example:
        >>> policy_for(spaces.Discrete(16), spaces.Discrete(4), "lake").space.count
        16
    """
    policy: Policy | None = None
    if isinstance(observations, spaces.Discrete) and isinstance(actions, spaces.Discrete):
        policy = TablePolicy(
            states=int(observations.n), actions=int(actions.n),
            first_state=int(observations.start), first_action=int(actions.start),
        )  # fmt: skip
    elif isinstance(observations, spaces.Box):
        inputs = int(np.prod(observations.shape))
        if isinstance(actions, spaces.Discrete):
            policy = LinearPolicy(
                inputs=inputs, outputs=int(actions.n), first_action=int(actions.start)
            )
        elif isinstance(actions, spaces.Box):
            limits = (actions.low.ravel().astype(float), actions.high.ravel().astype(float))
            policy = LinearPolicy(
                inputs=inputs, outputs=len(limits[0]), limits=limits, shape=actions.shape,
                dtype=actions.dtype,
            )  # fmt: skip
    if policy is None:
        raise ConfigError(
            f"task {name!r} has observations {observations} and actions {actions}: a search needs "
            "discrete observations with discrete actions, or vectors (Box) with discrete actions "
            "or vectors"
        )
    if policy.space.count > MOST_PARAMS:
        raise ConfigError(
            f"task {name!r} needs a policy of {policy.space.count:,} parameters, and the most is "
            f"{MOST_PARAMS:,}: choose a task with smaller observations"
        )
    return policy
