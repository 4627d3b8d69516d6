import os
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def chromium():
    """Return the path of a Chromium, installed where that is allowed; without one the test is skipped."""
    path = os.environ.get("PAMC_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None and os.environ.get("PAMC_INSTALL_CHROMIUM") and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "chromium"]):
            subprocess.run(command, capture_output=True, timeout=900, check=False)
        path = shutil.which("chromium")
    if path is None:
        pytest.skip(
            "no Chromium: name one in PAMC_CHROMIUM, or as root allow its installation: PAMC_INSTALL_CHROMIUM=1"
        )
    return path


@pytest.fixture(scope="module", autouse=True)
def _quick_fits(few_repeats):
    """These tests are about the report, not about the clusters that a fit finds."""
