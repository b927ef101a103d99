"""The code that runs inside a sandbox: the worker, its isolation, and the child of each program.

All modules import only the standard library and each other, because a worker is a separate
interpreter. `turnwise.sandbox` starts it and communicates with it.
"""
