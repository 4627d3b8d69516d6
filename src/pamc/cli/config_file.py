"""The file that `pamc fit --config` reads: settings, and options of the command under their long names."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import typer

from pamc.config import RENAMED_SETTINGS, MethodConfig
from pamc.errors import ConfigError, choices

# Parameters of the command that the file does not contain, and those that it contains as settings.
_NOT_IN_FILE = ("config_file", "print_config", "settings")
_SETTINGS = ("epochs", "alpha", "beta", "n_hops", "min_confidence", "image_shape")


def use_as_defaults(context: typer.Context, path: Path | None, options: type) -> Path | None:
    """Make the options in a file the defaults of a command, so that the command line overrides them; return the path.

    Parameters
    ----------
    options
        The dataclass of the command's options.
    """
    if path is not None and not context.resilient_parsing:
        fields, names = {field.name: field for field in dataclasses.fields(options)}, _names(options)
        given = {names[name]: value for name, value in _read(path).items() if name in names}
        context.default_map = {
            name: _typed(path, name, value, is_list=str(fields[name].type).startswith("list"))
            for name, value in given.items()
        }
    return path


def settings_of_file(path: Path | None, config_class: type[MethodConfig], options: type) -> dict[str, Any]:
    """Return the settings in a file, without the options of the command."""
    if path is None:
        return {}
    values = {name: value for name, value in _read(path).items() if name not in _names(options)}
    known = config_class.names()
    for name in values:
        if name not in (*known, *RENAMED_SETTINGS):
            raise ConfigError(f"{path}: unknown setting {name!r}: {choices(name, {*known, *_names(options)})}")
    try:
        settings = config_class.from_dict(values).to_dict()
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {name: settings[name] for name in values}


def config_text(config: MethodConfig, options: Any) -> str:
    """Return the text of a file for `--config` with these settings and with options that differ from their defaults."""
    text = config.to_toml()
    for name, parameter in _names(type(options)).items():
        value: Any = getattr(options, parameter)
        is_given = value is not None and value != getattr(type(options), parameter).default
        if parameter != "n_clusters" and is_given:
            plain = str(value) if isinstance(value, Path) else value
            text += f"{name} = {json.dumps(plain, ensure_ascii=False)}\n"
    if options.chooses_number:
        return text.replace(f"n_clusters = {config.n_clusters}\n", f'n_clusters = "{options.n_clusters}"\n', 1)
    return text


def _names(options: type) -> dict[str, str]:
    """Return a dict from the names of options in the file, such as id for --id, to the parameters of the command."""
    names = {}
    for field in dataclasses.fields(options):
        if field.name not in (*_NOT_IN_FILE, *_SETTINGS):
            declared: Any = field.default
            long = [name for name in declared.param_decls or () if name.startswith("--")]
            names[long[0][2:].partition("/")[0].replace("-", "_") if long else field.name] = field.name
    return names


def _read(path: Path) -> dict[str, Any]:
    """Return the values in a TOML file; hyphens in names are replaced by underscores."""
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError(f"{path} is YAML, but --config reads TOML: pamc fit … --print-config > fit.toml writes one")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read settings from {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: settings are not valid TOML: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {name.replace("-", "_"): value for name, value in values.items()}


def _typed(path: Path, name: str, value: Any, *, is_list: bool) -> Any:
    """Return a value as it would be typed on the command line; a table becomes a list of NAME=VALUE."""
    if isinstance(value, dict):
        value = [f"{key}={item}" for key, item in value.items()]
    if not is_list and isinstance(value, list):
        raise ConfigError(f"{path}: {name} must be a single value, got {value}")
    if is_list:
        return [str(item) for item in (value if isinstance(value, list) else [value])]
    return value if isinstance(value, bool) else str(value)
