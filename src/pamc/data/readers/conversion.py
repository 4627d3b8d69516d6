"""Convert files to temporary files that can be read like other tables."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from pamc.data.files import reading
from pamc.errors import BackendError

# Converted files by path and modification time, and their folder, which is removed when the process ends.
_CONVERTED: dict[tuple[Path, int], Path] = {}
_FOLDER: list[tempfile.TemporaryDirectory[str]] = []


def converted(path: Path, suffix: str, convert: Callable[[Path, Path], None]) -> Path:
    """Convert a file to a temporary file with this suffix, unless it was converted already, and return its path."""
    key = (path.resolve(), path.stat().st_mtime_ns)
    if key not in _CONVERTED:
        if not _FOLDER:
            _FOLDER.append(tempfile.TemporaryDirectory(prefix="pamc-"))
        target = Path(_FOLDER[0].name, f"{len(_CONVERTED)}{suffix}")
        with reading(path):
            convert(path, target)
        _CONVERTED[key] = target
    return _CONVERTED[key]


def load_package(name: str, extra: str, kind: str) -> Any:
    """Import a module of an optional package; raise BackendError that names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise BackendError(f"{kind} files are read with {package}: pip install 'pamc[{extra}]'") from None


def values_of(table: Any) -> dict[str, Any]:
    """Return the fields of a table by name."""
    return {part.name: getattr(table, part.name) for part in fields(table)}
