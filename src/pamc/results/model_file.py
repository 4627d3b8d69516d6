"""A fitted model as one safetensors file: tensors, settings as JSON, a format version, a checksum. No pickle."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pamc.errors import ModelFileError, OutputError
from pamc.training.checkpoint import checksum_of

__all__ = ["FORMAT_VERSION", "read_model", "write_model"]

FORMAT_VERSION = 4


def write_model(path: Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Write tensors and a JSON-able description to `path`."""
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(description, sort_keys=True, allow_nan=False)
    metadata = {
        "format": "pamc",
        "format_version": str(FORMAT_VERSION),
        "description": text,
        "sha256": checksum_of(stored, text),
    }
    # safetensors makes its files for their owner alone. This one is for all who may read the rest of the run.
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        save_file(stored, path, metadata=metadata)
    except SafetensorError as error:
        raise OutputError(f"cannot write to {path}: {error}") from None
    path.chmod(mode)


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the description of a file, or say what is wrong with it.

    Raises
    ------
    ModelFileError
        The file is missing, cut off, not one of ours, of a newer format, or was changed after it was written.
    """
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model file; name a folder that `pamc fit` or `save` wrote")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path} is damaged or not a model file: restore it, or fit again ({error})") from None
    if metadata.get("format") != "pamc":
        raise ModelFileError(f"{path} was not written by pamc")
    version = metadata.get("format_version", "")
    if version != str(FORMAT_VERSION):
        raise ModelFileError(
            f"{path} has format version {version}; this pamc reads version {FORMAT_VERSION}: fit again, or use the "
            "pamc that wrote it"
        )
    text = metadata.get("description", "")
    if checksum_of(tensors, text) != metadata.get("sha256"):
        raise ModelFileError(
            f"{path} was changed after it was written, so its checksum does not match: restore it, or fit again"
        )
    description: dict[str, Any] = json.loads(text)
    return tensors, description
