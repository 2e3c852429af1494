# Carillon · client.py
# SPDX-License-Identifier: Apache-2.0
"""An asyncio client of a user's inbox, over the native WebSocket dialect (docs/sockets.md)."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from carillon.errors import Displaced, InboxError, SignedOut
from carillon.gateway import authorization, parse_address, parse_problem
from carillon.mailbox import Mailbox
from carillon.outbox import Outbox
from carillon.state import EphemeralEvent, InboxState, Notification
from carillon.tokens import TokenProvider, TokenSource
from carillon.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self
    from websockets.asyncio.client import ClientConnection

_MOST_IDS = 1_000
# A resume may bring 500 notifications with all their fields at the limit.
_MOST_BYTES = 32 * 1024 * 1024
# The same as the gateway's own ping interval and timeout.
_PING_INTERVAL, _PING_TIMEOUT = 25, 20
_UNAUTHORIZED, _TOO_MANY_CONNECTIONS = 4401, 4409

logger = logging.getLogger("carillon.client")
# At DEBUG, websockets logs the handshake with its token.
_socket_logger = logging.getLogger("carillon.client.socket")
_socket_logger.setLevel(logging.INFO)


def _parse_integer(digits: str) -> int | float:
    """Returns an integer; a float if it has more digits than Python converts, 4,300 by default."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def _backoff(failures: int) -> float:
    """Returns the seconds to wait after a number of failures in a row, with full jitter."""
    longest: float = min(30.0, 0.5 * 2 ** min(failures, 10))
    return random.random() * longest


class Inbox:
    """A user's inbox, kept up to date over a socket.

        async with Inbox(url, token) as inbox:
            async for notification in inbox.arrivals():
                await inbox.read([notification.id])

    `async with` waits for the first connection. The inbox reconnects automatically, with a backoff
    of up to 30 s and full jitter or when the gateway says, and resumes where it left off:
    `arrivals()` yields each new notification once. While the inbox is open, the user counts as
    present, so the user's phone stays silent; see `focus`.

    An inbox resumes from a version that belongs to one user. Open a new one for another user.

    Args:
        url: the gateway's address, such as `https://notify.example.com`.
        token: the user's token, or a function that returns one; None means that no user is logged
            in. The argument of the function is True if you must return a fresh token: the gateway
            refused the last one, it expires soon, or it was not a valid text. A coroutine function
            runs on the loop, any other in a thread. If it raises or returns an invalid text, the
            inbox calls it again later. Calls never overlap, and a lost connection does not cancel
            a call, so give yours a timeout.
        resume: the version of the last notification that an earlier process handled. The inbox then
            holds the changes since, and `arrivals()` begins there.
        most_items: the limit of `items`. The oldest items above it leave the list, not the inbox.
        most_waiting: the limit of waiting arrivals, and of waiting events. Above it, the inbox
            drops the oldest and counts it in `dropped`. A dropped arrival stays unread in the
            inbox.
        ready_timeout: the most seconds that `async with` waits; None for no limit.
        context: TLS settings, such as a certificate authority of your own.

    Raises:
        SignedOut, Displaced: the inbox ended. `async with`, `arrivals()`, `events()`, `changed()`
            and `read()` raise it.
        TimeoutError: `async with` waited for longer than `ready_timeout`.
    """

    def __init__(
        self,
        url: str,
        token: str | TokenProvider,
        *,
        resume: int | None = None,
        most_items: int = 1_000,
        most_waiting: int = 1_000,
        ready_timeout: float | None = 30.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        if find_spec("websockets") is None:
            raise ImportError("Inbox needs websockets; install carillon[client]")
        parts = parse_address(url)
        if min(most_items, most_waiting) < 1:
            raise ValueError("most_items, most_waiting: must be at least 1")
        self._place = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._address = f"{self._place.replace('http', 'ws', 1)}/v1/socket"
        self._tokens = TokenSource(token)
        self._context = context
        self._ready_timeout = ready_timeout
        self._state = InboxState(resume, most_items)
        self._arrivals: Mailbox[Notification] = Mailbox(most_waiting, "arrivals")
        self._events: Mailbox[EphemeralEvent] = Mailbox(most_waiting, "events")
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._end: Exception | None = None
        self._watchers: list[asyncio.Future[None]] = []
        self._outbox = Outbox()
        self._is_active = True
        self._is_online = False
        self._failures = 0
        self._drain_delay = 0.0
        self._trouble = "no answer"
        # Tests replace this.
        self._pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __repr__(self) -> str:
        return f"Inbox({self._place!r}, unread={self.unread}, online={self.online})"

    @property
    def items(self) -> list[Notification]:
        """The notifications, newest first: the newest 100 unread, and those that came since."""
        return self._state.items

    @property
    def unread(self) -> int:
        """The number of unread notifications in the whole inbox."""
        return self._state.unread

    @property
    def version(self) -> int | None:
        """The version of the inbox; None before the first connection."""
        return self._state.version

    @property
    def online(self) -> bool:
        """Whether the socket is open and up to date."""
        return self._is_online

    @property
    def dropped(self) -> int:
        """The number of arrivals and events that were dropped because nothing read them in time."""
        return self._arrivals.dropped + self._events.dropped

    def arrivals(self) -> AsyncIterator[Notification]:
        """Yields new notifications, also those that came during a lost connection.

        If several loops read, each arrival goes to one of them. After a gap of more than 500
        changes, the arrivals are the newest 100 unread; `GET /v1/notifications` has the rest.

        After a lost connection or with `resume`, an old notification that this inbox has never seen
        also arrives if the user marked it unread or restored it meanwhile.
        """
        return self._arrivals

    def events(self) -> AsyncIterator[EphemeralEvent]:
        """Yields ephemeral events. Events that an app sends during a lost connection are lost."""
        return self._events

    async def changed(self) -> None:
        """Waits for the next change of `items`, `unread` or `online`."""
        self._require_open()
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    async def read(self, ids: Iterable[str]) -> None:
        """Marks notifications as read on all of the user's clients.

        Waits for a connection and for the gateway's answer. Pass many ids in one call: the inbox
        sends about 16 messages a second, each with up to 1,000 ids.

        Raises:
            InboxError: an id is not a notification id, or 1,000 calls wait already.
            TypeError: an id is not a string.
        """
        names = [ids] if isinstance(ids, str) else list(ids)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"ids: must be strings, not {type(name).__name__}; give `notification.id`")
        for first in range(0, len(names), _MOST_IDS):
            await self._ask({"type": "read", "ids": names[first : first + _MOST_IDS]})
        # The change may come before or after the answer.
        try:
            await asyncio.wait_for(self._until(lambda: self._state.are_read(names)), 5)
        except asyncio.TimeoutError:
            pass

    async def read_all(self) -> None:
        """Marks everything as read that is in the inbox when the gateway gets the message.

        Does not wait for a connection and does not retry, because a later message would also mark
        notifications that came in between.

        Raises:
            InboxError: the inbox is not online, the connection ended before the answer, the gateway
                cannot make the change now, or 1,000 calls wait already.
        """
        await self._ask({"type": "read", "all": True}, is_repeatable=False)

    async def focus(self, active: bool) -> None:
        """Reports whether the user looks at the app. If not, the user gets pushes after a while."""
        self._is_active = active
        if self._socket:
            await self._say(self._socket, json.dumps({"type": "focus", "active": active}))

    async def __aenter__(self) -> Self:
        if self._task:
            raise InboxError("this inbox was open before; make a new one")
        self._task = asyncio.create_task(self._run())
        try:
            await asyncio.wait_for(self._until(lambda: self._is_online), self._ready_timeout)
        except asyncio.TimeoutError:
            await self._stop()
            raise TimeoutError(f"no inbox from {self._place} in {self._ready_timeout} s: {self._trouble}") from None
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _require_open(self) -> None:
        if self._end:
            raise self._end
        if not self._task:
            raise InboxError("the inbox is not open; use `async with`")

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.changed()

    async def _ask(self, message: dict[str, Any], is_repeatable: bool = True) -> None:
        """Sends a message and awaits its answer, as `Outbox.ask` does.

        Raises:
            InboxError: the inbox is not open, the message is not repeatable and there is no
                connection, or `Outbox.ask` raised it.
        """
        self._require_open()
        if not (is_repeatable or self._is_online):
            raise InboxError("the inbox is not online; call again when it is")
        await self._outbox.ask(message, is_repeatable)

    def _note_change(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def _run(self) -> None:
        """Keeps the inbox connected until it ends, then ends all loops and calls that wait."""
        end: Exception | None = None
        try:
            refused = False
            while True:
                refused = await self._connect(refused)
                self._outbox.disconnect()
                wait, self._drain_delay = self._drain_delay + _backoff(self._failures), 0.0
                self._failures += 1
                logger.info("%s; reconnecting to %s in %.1f s", self._trouble, self._place, wait)
                await self._pause(wait)
        except Exception as error:  # noqa: BLE001, the loops that read raise it
            end = error
        finally:
            self._end = end or InboxError("the inbox is closed")
            self._arrivals.end(end)
            self._events.end(end)
            for watcher in self._watchers:
                if not watcher.done():
                    watcher.set_exception(self._end)
            self._outbox.end(self._end)

    async def _connect(self, refused: bool) -> bool:
        """Serves one connection. Returns whether the next one needs a fresh token."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

        class Connect(connect):
            """Follows no redirect: some versions of websockets send the token to any host."""

            def process_redirect(self, exc: Exception) -> Exception:
                return exc

        try:
            token = await self._tokens.fetch(refused)
        except SignedOut:
            raise
        except Exception:
            logger.exception("the token provider failed")
            self._trouble = "the token provider failed"
            return refused
        try:
            header = authorization(token)
        except ValueError:
            # Ask for a fresh token next, in case the provider cached an error page.
            self._trouble = "the token provider returned a text that cannot be a token"
            logger.error(self._trouble)
            return True
        resume = "" if self.version is None else f"?resume={self.version}"
        try:
            socket = await Connect(
                self._address + resume,
                additional_headers={"Authorization": header},
                user_agent_header=f"carillon-python/{__version__}",
                compression=None,
                max_size=_MOST_BYTES,
                ping_interval=_PING_INTERVAL,
                ping_timeout=_PING_TIMEOUT,
                close_timeout=5,
                logger=_socket_logger,
                ssl=(self._context or True) if self._address.startswith("wss:") else None,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            self._trouble = f"the gateway answered {status}: {parse_problem(error.response.body)[0]}"
            return status == 401
        except (OSError, asyncio.TimeoutError, WebSocketException) as error:
            self._trouble = f"no connection: {error or type(error).__name__}"
            return False
        send = partial(self._say, socket)
        renewal = self._tokens.renew(token, send, self._pause)
        helpers = [asyncio.create_task(work) for work in (self._pump(send), renewal)]
        self._socket = socket
        try:
            async for text in socket:
                self._take(json.loads(text, parse_int=_parse_integer))
        except ConnectionClosed:
            pass
        finally:
            self._socket = None
            self._is_online = False
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await socket.close()
            self._note_change()
        self._trouble = f"the socket closed with {socket.close_code} {socket.close_reason}".rstrip()
        if socket.close_code == _TOO_MANY_CONNECTIONS:
            raise Displaced("the user has too many newer connections; open the inbox again when the user returns")
        return socket.close_code == _UNAUTHORIZED

    async def _pump(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Sends the focus and the messages of the outbox."""
        if not self._is_active:
            await send(json.dumps({"type": "focus", "active": False}))
        await self._outbox.pump(send, lambda failures: self._pause(_backoff(failures)))

    async def _say(self, socket: ClientConnection, text: str) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await socket.send(text)
        except ConnectionClosed:
            # `_connect`, which reads the socket, handles the close.
            pass

    def _take(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "sync" | "notification" | "read" | "deleted":
                for notification in self._state.apply(frame):
                    self._arrivals.put(notification)
                if frame["type"] == "sync":
                    self._failures, self._is_online = 0, True
                self._note_change()
            case "event":
                self._events.put(EphemeralEvent(frame["event"]["name"], frame["event"]["args"]))
            case "goodbye":
                self._drain_delay = frame["reconnect_after"] / 1_000
            # Ignore its count, which may be older than that of the last change.
            case "unread":
                self._outbox.take(frame)
            case "error" if not self._outbox.take(frame):
                logger.warning("the gateway refused a message: %s", frame["reason"])
