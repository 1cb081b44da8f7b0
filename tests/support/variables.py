"""The environment variables that tests and the processes they start may depend on, and the signals that end them."""

import os
import signal

# Of the system; of what fetches packages; of compilers; of sanitizers and emulators; of a run of the tests.
NAMES = {
    *("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "USERPROFILE", "CUDA_VISIBLE_DEVICES"),
    *("CC", "CXX", "CUDACXX", "CUDA_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONMALLOC", "PYTHONHOME", "PYTHON_GIL"),
    *("PYTHONPATH", "OMP_NUM_THREADS", "HYPOTHESIS_PROFILE", "QUADRAT_WHEEL_DIR", "QUADRAT_UNTESTED", "PYTHONHASHSEED"),
    *("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "TOKENIZERS_PARALLELISM", "SOURCE_DATE_EPOCH"),
}
PREFIXES = ("PIP_", "UV_", "SSL_CERT_", "ASAN_", "UBSAN_", "TSAN_", "QEMU_", "PYTEST_", "COVERAGE_")


def forget_others() -> None:
    """Remove all other variables from this process: tests must not pass because of a developer's shell.

    A job in the background ignores Ctrl-C, and so would what it starts: it is heard again.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in list(os.environ):
        if not (name in NAMES or name.startswith(PREFIXES) or name.lower().endswith("_proxy")):
            del os.environ[name]
