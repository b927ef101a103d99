"""Envs with tools: methods that a model may call before it answers."""
