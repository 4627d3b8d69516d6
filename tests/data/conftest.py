import os
from pathlib import Path

import pytest

from pamc.errors import DataError

DATA_FOLDER = os.environ.get("PAMC_DATA")


@pytest.fixture
def refusal():
    """Call something that must be refused and return the one line that says why."""

    def call(function, *args, error=DataError, **options):
        with pytest.raises(error) as caught:
            function(*args, **options)
        message = str(caught.value)
        assert "\n" not in message
        return message

    return call


@pytest.fixture
def write(tmp_path):
    """Write text or bytes to a named file and return its path."""

    def to_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to_file


@pytest.fixture
def data_folder():
    if not DATA_FOLDER:
        pytest.skip("PAMC_DATA is not set")
    return Path(DATA_FOLDER)
