"""Run the server: uvicorn with a graceful shutdown, and a task that reloads the model when it has been replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from pamc.serving.app import Limits, Served, create_app
from pamc.serving.model import missing_package

# Seconds between checks of the path of the model, and seconds that open requests have to finish after a shutdown.
_LOOK_EVERY_S, _STOP_WITHIN_S = 1.0, 30

# Seconds that an idle connection stays open: longer than in usual proxies and clients, which would otherwise send a
# request into a connection that is about to close.
_KEEP_ALIVE_S = 75


def serve(
    path: Path,
    *,
    host: str,
    port: int,
    limits: Limits,
    threads: int | None = None,
    on_change: Callable[[str], None],
    on_start: Callable[[str], None],
) -> None:
    """Serve a model until the process receives SIGTERM or SIGINT; open requests are completed first.

    Parameters
    ----------
    path
        Run folder, ONNX file, or a link to either. If the model is replaced, the server switches to the new one.
    host, port
        Address and port to listen on; port 0 chooses a free one.
    limits
        Limits of a request.
    threads
        Number of threads that process a request; by default the number of cores.
    on_change, on_start
        `on_change` is called with a message when the model was replaced or could not be; `on_start` is called with the
        URL when the server is ready.
    """
    try:
        import uvicorn
    except ImportError:
        raise missing_package() from None
    served = Served(path, threads=threads or os.cpu_count() or 1, on_change=on_change)
    app = create_app(served, limits)
    app.router.lifespan_context = _watching(served)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_STOP_WITHIN_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
        server_header=False,
        date_header=False,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.servers:
                listening = self.servers[0].sockets[0].getsockname()
                on_start(f"http://{f'[{listening[0]}]' if ':' in listening[0] else listening[0]}:{listening[1]}")

    Server(config).run()


def _watching(served: Served) -> Callable[[Any], contextlib.AbstractAsyncContextManager[None]]:
    """Return a lifespan during which the server switches to a new model whenever the model is replaced."""

    async def look() -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            await asyncio.to_thread(served.refresh)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(look())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    return lifespan
