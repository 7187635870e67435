"""What all tests share: goldens, which are expected texts kept as files. `make goldens` rewrites them; then read the diff."""

import os
import random
import signal
import sys

import numpy as np
import pytest

from ngraph import warn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NEED_ALL = "NGRAPH_TESTS_NEED_ALL"  # set where everything that tests need has to be there: a test that is skipped then fails
MAY_BE_SKIPPED = {  # the reason of a skip, and why a machine on which everything is installed may have it all the same
    "only root can give files away": "who runs the tests may be anybody",
    "no process may open 2,048 files here": "a limit that the machine's owner has set",
    "MNIST is not here": "data that are fetched, and not the project's",
    "the text is not here": "data that are fetched, and not the project's",
    "the runner of real models is not beside the project: ../shared/models": "models of gigabytes, which are not the project's",
    "this processor has no lower level": "the processor: those of one level have nothing to go down to",
    "TensorFlow has an environment of its own: make bridge-tests": "it is 1.3 GB, and fixes versions of packages that other tests need",
    "NumPy has no extended precision here; the tests with mpmath run": "the processor: AArch64 has no such numbers",
}


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job, whose children ignore Ctrl-C, too
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--update-goldens", action="store_true", help="write what is found instead of comparing")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--update-goldens"):  # nothing else needs to run then
        items[:] = [item for item in items if "golden" in getattr(item, "fixturenames", ())]


def whole(report):
    """The report; of a failure where a test was skipped, everything has to be there, and the reason is none of those above."""
    if os.environ.get(NEED_ALL, "0") != "0" and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")
        if not any(may in reason for may in MAY_BE_SKIPPED):
            report.outcome, report.longrepr = "failed", f"{report.nodeid} was skipped, and {NEED_ALL} is set: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return whole((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return whole((yield))


@pytest.fixture
def golden(request):
    """`golden("docs/loss.svg", text)`: the file, named from the root of the repository, holds exactly this text."""

    def compare(path, text):
        file = os.path.join(ROOT, path)
        if request.config.getoption("--update-goldens"):
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w", encoding="utf-8") as out:
                out.write(text)
        with open(file, encoding="utf-8") as kept:
            assert text == kept.read(), f"{path} differs; `make goldens` rewrites it"

    return compare


FIRST_STATES = {}  # of the generators that a test module holds, by its name


@pytest.fixture(autouse=True)
def same_random_numbers(request):
    """Each test finds all generators of random numbers in one state, also its module's own, whatever ran before it in the same process."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    module = request.module
    if module.__name__ not in FIRST_STATES:
        held = [g for g in vars(module).values() if isinstance(g, np.random.Generator)]
        FIRST_STATES[module.__name__] = [(g, g.bit_generator.state) for g in held]
    for generator, state in FIRST_STATES[module.__name__]:
        generator.bit_generator.state = state


@pytest.fixture(autouse=True)
def warnings_anew():
    """Each test sees each warning, whatever the tests before it were warned of."""
    warn.forget()


@pytest.fixture
def switching():
    """Threads take turns as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
