"""Files that are converted to a temporary file, which is then read like any other table."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from pamc.data.files import reading
from pamc.errors import BackendError

# Conversions of this process, by path and time of the last change; the folder is removed at the end.
_CONVERTED: dict[tuple[Path, int], Path] = {}
_FOLDER: list[tempfile.TemporaryDirectory[str]] = []


def converted(path: Path, suffix: str, convert: Callable[[Path, Path], None]) -> Path:
    """Return the temporary file with a suffix to which `convert` writes the content of a file, once per change."""
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
    """Import a module of an optional package; raise BackendError with the extra that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise BackendError(f"{kind} files are read with {package}: pip install 'pamc[{extra}]'") from None


def values_of(table: Any) -> dict[str, Any]:
    """Return the fields of a table by name."""
    return {part.name: getattr(table, part.name) for part in fields(table)}
