"""Plays `docker run ... IMAGE python3 ...` with bubblewrap, as far as workers can tell.

A container of its own kind: the host's libraries instead of an image, an ordinary user, no
capability, no network, a root folder that cannot be written, the file systems asked for.
"""

import itertools
import os
import sys

LINKS = ("/bin", "/sbin", "/lib", "/lib64")


def command(words: list[str]) -> list[str]:
    """Return bubblewrap's command for a runtime's."""
    given = list(itertools.pairwise(words))
    (user,) = [value.partition(":")[0] for name, value in given if name == "--user"]
    told = ["bwrap", "--as-pid-1", "--unshare-user", "--uid", user, "--gid", user]
    told += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--ro-bind"]
    told += ["/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--clearenv"]
    for path in LINKS:
        if os.path.islink(path):
            told += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            told += ["--ro-bind", path, path]
    for name, value in given:
        if name == "--env":
            told += ["--setenv", *value.split("=", 1)]
        elif name == "--volume":
            told += ["--ro-bind", *value.split(":")[:2]]
        elif name == "--tmpfs":
            told += ["--size", str(1 << 28), "--tmpfs", value.partition(":")[0]]
    python = words[words.index("python3") + 1 :]
    for path in {sys.base_prefix, os.path.realpath(sys.base_prefix)} - {"/usr"}:
        told += ["--ro-bind", path, path]
    executable = os.path.realpath(sys.executable)
    return [*told, "--remount-ro", "/", "--chdir", "/", "--", executable, *python]


if __name__ == "__main__":
    told = command(sys.argv[1:])
    os.execvp(told[0], told)
