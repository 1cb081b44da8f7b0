"""Shared by all tests: hypothesis profiles, the two ways to read a tensor, memory with guards around it."""

import gc
import os

import pytest
from _pytest.junitxml import xml_key
from hypothesis import HealthCheck, Phase, settings

from support import variables
from support.guarded import Guarded

variables.forget_others()
os.environ |= {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

# `make test` draws the same examples each time, so that it fails for what changed; nightly draws new ones.
_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # a busy machine is no failure
settings.register_profile("default", max_examples=30, derandomize=True, **_common)
settings.register_profile("thorough", max_examples=100, derandomize=True, **_common)
settings.register_profile("nightly", max_examples=2000, **_common)
settings.register_profile("sanitize", max_examples=30, **_common)  # each takes several times as long there
# Without shrinking.
settings.register_profile("sketch", max_examples=200, phases=[Phase.explicit, Phase.generate], **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items):
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.property)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()  # tests collect often, and need not look through what the libraries have made by now


def pytest_sessionstart(session):
    session.folders = _folders(session)
    # Not by the fixture record_testsuite_property, which is silent in the processes of pytest-xdist.
    report = session.config.stash.get(xml_key, None)
    if report is not None:
        from support import environment

        for name, value in environment.properties().items():
            report.add_global_property(name, value)


def _folders(session):
    return {path.name for path in session.config.rootpath.iterdir() if path.is_dir() and not path.name.startswith(".")}


def pytest_sessionfinish(session):
    """No test leaves a folder in the checkout, as a Trainer without arguments does."""
    left = _folders(session) - session.folders - {"build"}
    if left and not hasattr(session.config, "workerinput"):
        session.config.get_terminal_writer().line(f"\ntests left {', '.join(sorted(left))} in the checkout", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def guarded():
    return Guarded


@pytest.fixture(scope="session")
def interops():
    from support import ingest  # torch, which tests of kernels do without

    return ingest.interops()
