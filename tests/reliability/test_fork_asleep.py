"""The plugin for builds with sanitizers: a process is copied only while its other threads sleep."""

import hashlib
import os
import sys
import threading
import time

import pytest

from support import fork_asleep


def turns(answer):
    """Whether others_sleep() gives this answer within a minute."""
    end = time.monotonic() + 60
    while fork_asleep.others_sleep() is not answer and time.monotonic() < end:
        pass
    return time.monotonic() < end


@pytest.mark.skipif(sys.platform != "linux", reason="the states of threads are read from /proc")
def test_sees_whether_others_sleep():
    computed, asleep = threading.Event(), threading.Event()

    def compute():
        while not computed.is_set():
            hashlib.pbkdf2_hmac("sha256", b"text", b"salt", 100_000)  # without the interpreter's lock
        asleep.wait()

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        assert turns(False)
        computed.set()
        assert turns(True)
    finally:
        computed.set()
        asleep.set()
        thread.join()


def test_waits_until_others_sleep(monkeypatch):
    answers = [False, False, True, True]
    monkeypatch.setattr(fork_asleep, "others_sleep", lambda: answers.pop(0))
    monkeypatch.setattr(fork_asleep, "SECONDS", 600.0)
    fork_asleep.settle()
    assert answers == [True]


def test_does_not_wait_forever(monkeypatch):
    monkeypatch.setattr(fork_asleep, "others_sleep", lambda: False)
    monkeypatch.setattr(fork_asleep, "SECONDS", 0.01)
    fork_asleep.settle()


def test_the_plugin_asks_for_it(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: asked.append(hooks))
    fork_asleep.pytest_configure()
    assert asked == [{"before": fork_asleep.settle}]
