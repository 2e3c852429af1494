# Carillon · fake_gateway.py
# SPDX-License-Identifier: Apache-2.0
"""A gateway for tests of an inbox."""

import asyncio
import json
import logging
import ssl
import unittest
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from unittest import mock

from carillon import Inbox

try:
    from websockets.asyncio.server import Server, ServerConnection, serve
    from websockets.datastructures import Headers
    from websockets.exceptions import ConnectionClosed
    from websockets.http11 import Request, Response
except ImportError:
    # It also skips the modules that import this one, which they do before they import websockets.
    raise unittest.SkipTest("needs websockets") from None

if TYPE_CHECKING:
    from typing_extensions import Self

WELCOME = {"type": "welcome", "connection": "c", "ping_interval": 25_000, "version": 0}
# Seconds; long, so that only a failure ends a test on a busy machine.
PATIENCE = 30

Script = Callable[[ServerConnection], Awaitable[None]]


async def say(socket: ServerConnection, *frames: dict[str, Any]) -> None:
    for frame in frames:
        await socket.send(json.dumps(frame))


class Gateway:
    """Serves each connection with the next script. A status or an answer refuses the handshake."""

    def __init__(self, *scripts: Script | int | Response, tls: ssl.SSLContext | None = None) -> None:
        self.scripts = list(scripts)
        self.tls = tls
        self.paths: list[str] = []
        self.tokens: list[str] = []
        self.heard: list[dict[str, Any]] = []
        self.server: Server
        self.running: dict[ServerConnection, Script] = {}

    async def __aenter__(self) -> "Self":
        self.server = await serve(self.run, "127.0.0.1", 0, process_request=self.admit, ssl=self.tls)
        scheme = "https" if self.tls else "http"
        self.url = f"{scheme}://127.0.0.1:{next(iter(self.server.sockets)).getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await self.server.wait_closed()

    def admit(self, socket: ServerConnection, request: Request) -> Response | None:
        self.paths.append(request.path)
        self.tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
        script = self.scripts.pop(0)
        if isinstance(script, int):
            return Response(script, "", Headers())
        if isinstance(script, Response):
            return script
        self.running[socket] = script
        return None

    async def run(self, socket: ServerConnection) -> None:
        try:
            await self.running[socket](socket)
        except ConnectionClosed:
            pass

    async def hear(self, socket: ServerConnection) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await socket.recv())
        self.heard.append(message)
        return message


async def hold(socket: ServerConnection) -> None:
    await socket.wait_closed()


def opening(*frames: dict[str, Any], then: Script = hold) -> Script:
    """Returns a script that opens the inbox with frames."""

    async def script(socket: ServerConnection) -> None:
        await say(socket, WELCOME, *frames)
        await then(socket)

    return script


def closing(code: int, *frames: dict[str, Any]) -> Script:
    """Returns a script that opens the inbox with frames, then closes it."""

    async def close(socket: ServerConnection) -> None:
        await socket.close(code, "a reason")

    return opening(*frames, then=close)


class InboxTestCase(unittest.IsolatedAsyncioTestCase):
    """Tests of an inbox, without its log and with short backoffs."""

    def setUp(self) -> None:
        logging.getLogger("carillon.client").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("carillon.client").setLevel, logging.NOTSET)
        # The longest backoff is then the wait itself.
        patched = mock.patch("carillon.client.random.random", return_value=0.01)
        patched.start()
        self.addCleanup(patched.stop)

    async def soon(self, work: Awaitable[Any]) -> Any:
        return await asyncio.wait_for(work, PATIENCE)

    def giving_up(self, inbox: Inbox) -> Inbox:
        """Makes the wait for an inbox end after its first failed connection, as its limit would."""

        async def end(_: float) -> None:
            raise asyncio.TimeoutError

        inbox._pause = end
        return inbox

    async def take(self, inbox: Inbox, count: int) -> list[str]:
        arrivals = inbox.arrivals()
        return [(await self.soon(arrivals.__anext__())).title for _ in range(count)]
