"""What runs inside a sandbox: its worker, its walls, and the child in which a program runs.

Provides plain modules that import the standard library and each other, and nothing else of
turnwise: a worker is an interpreter of its own. `turnwise.sandbox` starts it and talks to it.
"""
