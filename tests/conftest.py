"""What all tests share: goldens, which are expected texts kept as files. `make goldens` rewrites them; then read the diff."""

import os

import pytest

from ngraph import warn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def pytest_addoption(parser):
    parser.addoption("--update-goldens", action="store_true", help="write what is found instead of comparing")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--update-goldens"):  # nothing else needs to run then
        items[:] = [item for item in items if "golden" in getattr(item, "fixturenames", ())]


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


@pytest.fixture(autouse=True)
def warnings_anew():
    """Each test sees each warning, whatever the tests before it were warned of."""
    warn.forget()
