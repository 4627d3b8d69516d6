"""One file over HTTP: resumed where it stopped, checked before it counts."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from pamc.errors import ConfigError, DataError, OutputError

__all__ = ["Progress", "fetch", "sha256_of"]

Progress = Callable[[int, int | None], None]

_CHUNK_BYTES = 1 << 18


def fetch(
    url: str,
    target: str | PathLike[str],
    *,
    sha256: str,
    progress: Progress | None = None,
    timeout_s: float = 30.0,
) -> Path:
    """Return the path of the downloaded file, whole and with the right checksum, or raise and leave no such file.

    Bytes go to ``target.part``. When the connection breaks, or the user does, the part stays and the next call asks the
    server for the rest; a server that cannot do that sends the whole again. The part is renamed to ``target`` in one
    step after its checksum was found right, and deleted when it was not.

    Parameters
    ----------
    url
        An http or https address.
    target
        Where the file shall be; its folder is made.
    sha256
        The checksum in hexadecimal.
    progress
        Called with the bytes so far and the total, None where the server does not say.
    timeout_s
        Longest silence of the server.

    Examples
    --------
    >>> fetch("ftp://host/x.npz", "x.npz", sha256="")
    Traceback (most recent call last):
    pamc.errors.ConfigError: only http and https addresses can be fetched, got 'ftp://host/x.npz'
    """
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"only http and https addresses can be fetched, got {url!r}")
    target = Path(target)
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _download(url, part, progress, timeout_s)
        found = sha256_of(part)
        if found != sha256.lower():
            part.unlink()
            raise DataError(
                f"{url}: the file has sha256 {found}, expected {sha256}; it was deleted. Try again, or tell its keeper"
            )
        part.replace(target)
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error})") from error
    return target


def sha256_of(path: str | PathLike[str]) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(url: str, part: Path, progress: Progress | None, timeout_s: float) -> None:
    start = part.stat().st_size if part.exists() else 0
    with _open(url, start, timeout_s) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            start = 0
        length = response.headers.get("Content-Length")
        total = None if length is None else start + int(length)
        done = start
        with part.open("ab" if start else "wb") as stream:
            for chunk in _chunks(response, url):
                stream.write(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    if total is not None and done < total:
        raise DataError(f"{url}: the connection ended after {done} of {total} bytes; the next call goes on from there")


def _open(url: str, start: int, timeout_s: float) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "pamc"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        return urllib.request.urlopen(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                return _open(url, 0, timeout_s)
            raise DataError(f"{url}: the server answered {error.code} {error.reason}") from error
    except OSError as error:
        raise DataError(f"{url}: the server cannot be reached ({getattr(error, 'reason', error)})") from error


def _chunks(response: Any, url: str) -> Iterator[bytes]:
    try:
        while chunk := response.read(_CHUNK_BYTES):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{url}: the connection broke ({error!r}); the next call goes on from there") from error
