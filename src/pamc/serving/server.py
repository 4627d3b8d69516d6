"""Run the server: uvicorn with a graceful stop, and a task that replaces the model when another one is put in place."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from pamc.serving.app import Limits, Served, create_app
from pamc.serving.model import missing_package

# Seconds between two looks at the path of the model, and seconds that open requests have to end after a stop.
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
    """Serve a model until the process gets SIGTERM or SIGINT; open requests are answered first.

    Parameters
    ----------
    path
        Run folder, ONNX file, or a link to either. If another model is put there, it is served from then on.
    host, port
        Address to listen at; port 0 takes a free one.
    limits
        Limits of a request.
    threads
        Number of threads of a computation; by default the number of cores.
    on_change, on_start
        Called with a message when the model was replaced, and with the URL once the server listens.
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
    """Return a lifespan during which the model is replaced whenever another one is put in its place."""

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
