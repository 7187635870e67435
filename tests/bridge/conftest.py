"""The bridge's tests run where TensorFlow is installed, which has an environment of its own: `make bridge-tests`."""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture(autouse=True)
def bridge():
    """The bridge, enabled for the test, with the settings that it has at first."""
    from ngraph.frontends.tensorflow import bridge

    bridge.set_backend("CPU")
    bridge.set_disabled_ops("")
    bridge.enable()
    bridge.reset()
    yield bridge
    bridge.disable()


@pytest.fixture
def every_cluster(monkeypatch):
    """No cluster is given back because it is small."""
    monkeypatch.setenv("NGRAPH_TF_DISABLE_DEASSIGN_CLUSTERS", "1")


@pytest.fixture
def without_prices(monkeypatch):
    """No cluster is given back because it costs more than TensorFlow's ops, as those of small models do."""
    from ngraph.bridge import prices

    monkeypatch.setattr(prices, "why_given_back", lambda ours, theirs: "")
