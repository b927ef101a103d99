from dataclasses import replace

import pytest

from turnwise.errors import SandboxError
from turnwise.sandbox import Sandbox
from turnwise.sandbox.backends import BACKENDS


@pytest.fixture(scope="session")
def isolated():
    """A sandbox that all tests of a process use: whatever one leaves behind, the next would see."""
    with Sandbox(workers=1, preload=("numpy",)) as sandbox:
        try:
            sandbox.start()
        except SandboxError as refused:
            pytest.skip(str(refused))
        yield sandbox


@pytest.fixture(scope="session")
def landlocked():
    """A sandbox as it is where the kernel does not grant namespaces."""
    sandbox = Sandbox(workers=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "isolated", replace(BACKENDS["isolated"], walls=("landlock",)))
        try:
            sandbox.start()
        except SandboxError as refused:
            pytest.skip(str(refused))
    with sandbox:
        yield sandbox
