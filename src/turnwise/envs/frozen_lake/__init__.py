"""FrozenLake: the env on maps of any size, the published variant, and exact values."""
