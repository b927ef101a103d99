"""Which task comes next."""

from turnwise.curriculum.uniform import UniformCurriculum, Visit

__all__ = ["UniformCurriculum", "Visit"]
