"""Who speaks when, who sees what: plain async Python over `act` and `ask`."""

from turnwise.errors import unknown_name
from turnwise.workflows.base import Seat, Workflow
from turnwise.workflows.solo import solo

WORKFLOWS: dict[str, Workflow] = {"solo": solo}


def get_workflow(name: str) -> Workflow:
    """Return the workflow called `name`; raise `UnknownNameError` with the nearest name."""
    if name not in WORKFLOWS:
        raise unknown_name("workflow", name, WORKFLOWS)
    return WORKFLOWS[name]


__all__ = ["WORKFLOWS", "Seat", "Workflow", "get_workflow", "solo"]
