"""Save and load a fit: one safetensors file with tensors, JSON settings, a version and a checksum. No pickle."""

from __future__ import annotations

import copy
import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from pamc.data.columns.encoding import TableEncoding
from pamc.data.preprocessing import Preprocessing
from pamc.errors import ConfigError, ModelFileError, OutputError
from pamc.initialize.calibration import BeforeTraining, Calibration
from pamc.initialize.drift import Reference
from pamc.initialize.noise import NoiseRule
from pamc.models.layers import MLP
from pamc.models.method import METHODS, BuildInput, Method
from pamc.runtime import generator, on_tensor_cores, resolve_dtype
from pamc.training.checkpoint import checksum_of
from pamc.training.phases import Fit

FORMAT_VERSION = 4


def write_model(path: Path, tensors: dict[str, Tensor], description: dict[str, Any]) -> None:
    """Write tensors and a JSON-serializable description to a file."""
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(description, sort_keys=True, allow_nan=False)
    metadata = {
        "format": "pamc",
        "format_version": str(FORMAT_VERSION),
        "description": text,
        "sha256": checksum_of(stored, text),
    }
    # safetensors creates files that only the owner can read; use the default permissions of new files instead.
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    try:
        save_file(stored, path, metadata=metadata)
    except SafetensorError as error:
        raise OutputError(f"cannot write to {path}: {error}") from None
    path.chmod(mode)


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the description that :func:`write_model` wrote.

    Raises ModelFileError if the file is missing or truncated, has another format or version, or was changed later.
    """
    if not path.is_file():
        raise ModelFileError(f"{path}: no such model file; pass a folder that `pamc fit` or `save` wrote")
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


_PLAIN = ("method", "seed", "device", "sparse_input", "history", "seconds", "scores", "facts", "warnings")
_ENCODER, _NETWORK, _PREPROCESSING, _CALIBRATION = "encoder.", "network.", "preprocessing.", "calibration."
_BEFORE, _NOISE, _REFERENCE = "before.", "noise.", "reference."


@dataclass(frozen=True, eq=False)
class SavedFit:
    """A fit and the feature columns that it expects.

    `own_encoder` is True if the encoder is a user-defined module, of which only the weights are saved. `id_column` is
    the name of the column of row ids if the rows came from a table that has one. `encoding` is how the columns of a
    table of mixed types are encoded, None for plain numbers.
    """

    fit: Fit
    n_features: int
    feature_names: tuple[str, ...] | None = None
    own_encoder: bool = False
    id_column: str | None = None
    encoding: TableEncoding | None = None
    is_slim: bool = False


def save_fit(path: Path, saved: SavedFit, *, slim: bool = False) -> None:
    """Write a fit to a file; `slim` leaves out everything that has one value or more per training row."""
    fit = saved.fit
    tensors = {
        "centers": fit.centers,
        "meta_nodes": fit.meta_nodes,
        **({} if slim else _row_tensors(fit)),
        **_calibration_tensors(fit.calibration),
        **_rule_tensors(fit.noise_rule),
        **_reference_tensors(fit.reference),
        **({} if fit.linkage is None else {"linkage": torch.from_numpy(fit.linkage)}),
        **{_PREPROCESSING + name: torch.from_numpy(array) for name, array in fit.preprocessing.arrays.items()},
        **_weights(fit),
    }
    description = {
        "config": fit.config.to_dict(),
        "preprocessing": fit.preprocessing.kind,
        "n_features": saved.n_features,
        "feature_names": saved.feature_names,
        "id_column": saved.id_column,
        "columns": None if saved.encoding is None else saved.encoding.to_dict(),
        "sizes": getattr(fit.encoder, "sizes", None) if not saved.own_encoder else None,
        **{name: getattr(fit, name) for name in _PLAIN},
    }
    write_model(path, tensors, description)


def load_fit(path: Path, *, encoder: nn.Module | None = None) -> SavedFit:
    """Load a fit from a file; pass `encoder`, a module that receives the weights, if the encoder was user-defined."""
    tensors, about = read_model(path)
    method = METHODS[about["method"]]
    config = method.config.from_dict(about["config"])
    own_encoder = method.inductive and about["sizes"] is None
    weights, has_rows = _under(_ENCODER, tensors), "labels" in tensors
    if own_encoder and encoder is None and method.init_of(config) is None:
        encoder = _built(method, config, about)
    fit = Fit(
        config=config,
        encoder=_restored(path, about["sizes"], encoder, weights, config.precision) if method.inductive else None,
        network=None,
        preprocessing=Preprocessing(
            about["preprocessing"], {n: t.numpy() for n, t in _under(_PREPROCESSING, tensors).items()}
        ),
        centers=tensors["centers"],
        meta_nodes=tensors["meta_nodes"],
        z=tensors["z"] if has_rows else tensors["centers"][:0],
        labels=tensors["labels"].numpy() if has_rows else np.empty(0, dtype=np.int64),
        confidence=tensors["confidence"].numpy() if has_rows else np.empty(0, dtype=np.float32),
        calibration=_calibration(path, tensors, about, config.precision),
        **_noise(_under(_NOISE, tensors)),
        linkage=tensors["linkage"].numpy() if "linkage" in tensors else None,
        sample_weight=tensors["sample_weight"].numpy() if "sample_weight" in tensors else None,
        reference=_reference(_under(_REFERENCE, tensors)),
        **{name: about[name] for name in _PLAIN},
    )
    names, columns = about["feature_names"], about.get("columns")
    return SavedFit(
        fit,
        about["n_features"],
        None if names is None else tuple(names),
        own_encoder,
        about["id_column"],
        None if columns is None else TableEncoding.from_dict(columns),
        is_slim=not has_rows,
    )


def _calibration_tensors(calibration: Calibration | None) -> dict[str, Tensor]:
    if calibration is None:
        return {}
    return {
        **{_CALIBRATION + name: torch.from_numpy(getattr(calibration, name)) for name in ("scores", "values")},
        _CALIBRATION + "reach": torch.tensor([calibration.reach], dtype=torch.float64),
        **{_BEFORE + _ENCODER + name: tensor for name, tensor in calibration.before.encoder.state_dict().items()},
        _BEFORE + "centers": calibration.before.centers,
    }


def _calibration(path: Path, tensors: dict[str, Tensor], about: dict[str, Any], precision: str) -> Calibration | None:
    """Return the calibration that maps a row to its confidence, or None if the fit has none."""
    saved = _under(_CALIBRATION, tensors)
    if not saved:
        return None
    before = _under(_BEFORE, tensors)
    encoder = _restored(path, about["sizes"], None, _under(_ENCODER, before), precision)
    return Calibration(
        BeforeTraining(encoder, before["centers"]),
        saved["scores"].numpy(),
        saved["values"].numpy(),
        reach=float(saved["reach"]),
        error=about["facts"]["confidence_error"],
    )


def _row_tensors(fit: Fit) -> dict[str, Tensor]:
    arrays = {"labels": fit.labels, "confidence": fit.confidence}
    arrays |= {} if fit.noise is None else {_NOISE + "codes": fit.noise}
    arrays |= {} if fit.sample_weight is None else {"sample_weight": fit.sample_weight}
    return {"z": fit.z, **{name: torch.from_numpy(array) for name, array in arrays.items()}}


def _rule_tensors(rule: NoiseRule | None) -> dict[str, Tensor]:
    arrays = {} if rule is None else {"means": rule.means, "reaches": rule.reaches}
    return {_NOISE + name: torch.from_numpy(array) for name, array in arrays.items()}


def _noise(saved: dict[str, Tensor]) -> dict[str, Any]:
    """Return the rule that tells noise from clusters and the codes of the training rows, if the fit has them."""
    rule = NoiseRule(saved["means"].numpy(), saved["reaches"].numpy()) if "means" in saved else None
    return {"noise_rule": rule, "noise": saved["codes"].numpy() if "codes" in saved else None}


def _reference_tensors(reference: Reference | None) -> dict[str, Tensor]:
    arrays = {} if reference is None else vars(reference)
    return {_REFERENCE + name: torch.from_numpy(array) for name, array in arrays.items()}


def _reference(saved: dict[str, Tensor]) -> Reference | None:
    """Return the moments of the clusters, or None for a model of an earlier version."""
    return Reference(**{name: tensor.numpy() for name, tensor in saved.items()}) if saved else None


def _weights(fit: Fit) -> dict[str, Tensor]:
    """Return the weights of the encoder, or of the whole network if new rows cannot be encoded without the graph.

    The weights of such a network are saved for the record only: labels of other rows require a new fit.
    """
    network, prefix = (fit.network, _NETWORK) if fit.encoder is None else (fit.encoder, _ENCODER)
    return {} if network is None else {prefix + name: tensor for name, tensor in network.state_dict().items()}


def _restored(
    path: Path, sizes: Any, encoder: nn.Module | None, weights: dict[str, Tensor], precision: str
) -> nn.Module:
    dtype, cores = resolve_dtype(precision), on_tensor_cores(precision)
    if sizes is not None:
        network: nn.Module = MLP(sizes, generator=generator(0, "weights"), dtype=dtype, tensor_cores=cores)
    elif encoder is not None:
        network = copy.deepcopy(encoder).to(dtype)
    else:
        raise ConfigError(f"{path} was fitted with a user-defined encoder: pass a module of the same kind as encoder=")
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise ModelFileError(f"{path}: the saved weights do not fit the encoder: {error}") from None
    return network.eval()


def _built(method: Method, config: Any, about: dict[str, Any]) -> nn.Module | None:
    """Return the encoder that a method builds from its settings alone; it then receives the saved weights."""
    columns = about.get("columns")
    n_features = about["n_features"] if columns is None else len(TableEncoding.from_dict(columns).feature_names)
    shape: dict[str, Any] = {"n_nodes": 1, "n_features": n_features, "config": config, "seed": about["seed"]}
    dtype = resolve_dtype(config.precision)
    return getattr(method.build(BuildInput(**shape, device=torch.device("cpu"), dtype=dtype)), "encoder", None)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
