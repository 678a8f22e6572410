import importlib.util
import os

import pytest

if importlib.util.find_spec("hypothesis"):  # tests/gpu needs no more than pytest beside the training environment
    from hypothesis import settings

    # Examples are not timed: on a busy machine a first call to torch alone can take longer than the default deadline.
    settings.register_profile("untimed", deadline=None, database=None)
    settings.load_profile("untimed")


@pytest.fixture(scope="session")
def isolated() -> None:
    """Skips, with the reason, where programs cannot be isolated; continuous integration must never skip."""
    from reward_fns.sandbox import SandboxError
    from reward_fns.sandbox.local import LocalSandbox

    try:
        LocalSandbox().prepare()
    except SandboxError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
