"""Start a worker: `python FOLDER PATHS`, where PATHS are those of `sys.path`, as JSON.

The folder is loaded as a package under a private name, which is removed before any program runs.
"""

import json
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "_sandbox_worker"


def main() -> None:
    """Load the worker and start it."""
    sys.path[:] = json.loads(sys.argv[1]) or sys.path[1:]
    sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
    sys.modules[PACKAGE].__path__ = [HERE]
    from _sandbox_worker import worker  # pyright: ignore[reportMissingImports]

    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    worker.main()


if __name__ == "__main__":
    main()
