"""What runs inside a sandbox: its worker, its walls, and the child in which a program runs.

Imports the standard library alone, and nothing of turnwise outside this folder: a worker is an
interpreter of its own, and small. `turnwise.sandbox` starts it and talks to it.
"""
