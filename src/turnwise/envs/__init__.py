"""Worlds: states, legal moves, rewards. One file each; they know nothing of models or tokens."""
