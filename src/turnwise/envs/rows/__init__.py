"""The `rows` env: a list of prompts, each answered once and judged by reward functions."""
