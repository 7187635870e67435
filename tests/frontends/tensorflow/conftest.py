"""Models that TensorFlow wrote, with its answers (`record.py`), unpacked for a run of the tests."""

import os
import zipfile

import pytest

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """The folder with the recorded models."""
    folder = tmp_path_factory.mktemp("tensorflow")
    with zipfile.ZipFile(os.path.join(RECORDED, "models.zip")) as file:
        file.extractall(folder)
    return folder
