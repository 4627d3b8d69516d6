"""The documentation builds without a warning, and its pages fetch nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_documentation_builds_offline_without_a_warning(tmp_path):
    pytest.importorskip("myst_nb", reason="the documentation is built with the extra docs")
    pytest.importorskip("furo", reason="the documentation is built with the extra docs")
    # No request can leave: whatever asks for a proxy gets one that nobody answers.
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(ROOT / "docs"), str(tmp_path)]
    environment = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    for page in tmp_path.rglob("*.html"):
        fetched = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?://[^\"]+)\"", page.read_text("utf-8"))
        assert not fetched, f"{page.name} fetches {fetched}"
    assert "<math" in (tmp_path / "equations.html").read_text("utf-8")
