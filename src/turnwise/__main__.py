"""`python -m turnwise` is the command `turnwise`.

Provides `main`, which answers a Ctrl-C that comes while modules are being imported, too.
"""

from __future__ import annotations

import os
import sys

STOPPED = 130
"""The exit code of a command that Ctrl-C stopped."""


def main() -> None:
    """Run the command line, which also finds modules in the working directory, after all others."""
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append("")
    try:
        from turnwise.cli.main import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()
