"""Workflows: which agent acts when, as plain async Python over `act` and `ask`."""

from turnwise.workflows.base import Agent, Agents, Workflow
from turnwise.workflows.state_machine import StateMachine, StateMachineConfig
from turnwise.workflows.table import WORKFLOWS, WorkflowConfig, make_workflow
from turnwise.workflows.turns import turns

__all__ = [
    "WORKFLOWS",
    "Agent",
    "Agents",
    "StateMachine",
    "StateMachineConfig",
    "Workflow",
    "WorkflowConfig",
    "make_workflow",
    "turns",
]
