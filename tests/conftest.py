"""Tests run side by side, as many as there are cores, so each has one core's threads."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # also of the processes that tests start

pytest_plugins = ["tests.browser"]
