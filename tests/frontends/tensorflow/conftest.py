"""Models that TensorFlow wrote, with its answers (`record.py`), unpacked for a run of the tests."""

import os
import zipfile

import pytest

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")


def unpacked(name, tmp_path_factory):
    """The folder with what a recorded zip file holds."""
    folder = tmp_path_factory.mktemp(name)
    with zipfile.ZipFile(os.path.join(RECORDED, f"{name}.zip")) as file:
        file.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """The folder with the recorded models."""
    return unpacked("models", tmp_path_factory)


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """The folder with the recorded tables."""
    return unpacked("tables", tmp_path_factory)
