# Carillon · client.py
# SPDX-License-Identifier: Apache-2.0
"""An asyncio client of a user's inbox, over the native WebSocket dialect (docs/sockets.md)."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from carillon.errors import Displaced, InboxError, SignedOut
from carillon.gateway import authorization, parse_address, parse_problem
from carillon.mailbox import Mailbox
from carillon.moments import token_expiry, token_life
from carillon.state import EphemeralEvent, InboxState, Notification
from carillon.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self
    from websockets.asyncio.client import ClientConnection

TokenProvider = Callable[[bool], str | None | Awaitable[str | None]]

_MOST_IDS = 1_000
_MOST_CALLS = 1_000
# The gateway closes a socket that sends more, with 1009.
_MOST_MESSAGE_BYTES = 64 * 1024
# A resume may bring 500 notifications with all their fields at the limit.
_MOST_BYTES = 32 * 1024 * 1024
# The gateway takes 20 messages a second from a socket.
_SPACING = 0.06
# The gateway pings as often, and gives a silent peer as long.
_PING_INTERVAL, _PING_TIMEOUT = 25, 20
_RENEWAL_LEAD = 60.0
# The device's clock may be ahead, so a fresh token is kept for a while even if it looks expired.
_RENEWAL_SPACING = 30.0
_UNAUTHORIZED, _TOO_MANY_CONNECTIONS = 4401, 4409
_NOT_NOW = "the gateway cannot make the change now; call again"

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

    `async with` waits until the inbox is there. The inbox reconnects on its own, with full jitter
    between 0.5 s and 30 s or when the gateway says, and resumes where it left off: `arrivals()`
    gives each new notification once. An open inbox counts as the user's presence, so the user's
    phone stays silent; see `focus`.

    An inbox belongs to one user, whose version it resumes from. Open a new one for another user.

    Args:
        url: the gateway's address, such as `https://notify.example.com`.
        token: the user's token, or a function that returns one, or None if no user is logged in. It
            is called with True if the gateway refused the last token, if that expires soon, or if
            the last text could not be a token: return a fresh one then. It may be a coroutine
            function; others run in a thread. If it raises or returns a text that cannot be a token,
            the inbox calls it again later. Calls never overlap, and the end of a connection cancels
            none, so give yours a timeout.
        resume: the version of the last notification that an earlier process handled. The inbox then
            holds what changed since, and `arrivals()` begins there.
        most_items: the bound of `items`. Beyond it, the oldest leave the list, not the inbox.
        most_waiting: the bound of arrivals, and of events, that wait for you. Beyond it the oldest
            is dropped and counted in `dropped`. A dropped arrival is still in the inbox, unread.
        ready_timeout: seconds that `async with` waits; None for no limit.
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
        if isinstance(token, str):
            authorization(token)
        self._token = token
        # The last call of the provider. A cancelled one may lose a refresh token that works once.
        self._token_call: asyncio.Task[str] | None = None
        self._context = context
        self._ready_timeout = ready_timeout
        self._state = InboxState(resume, most_items)
        self._arrivals: Mailbox[Notification] = Mailbox(most_waiting, "arrivals")
        self._events: Mailbox[EphemeralEvent] = Mailbox(most_waiting, "events")
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._end: Exception | None = None
        self._watchers: list[asyncio.Future[None]] = []
        # Messages by their reference, oldest first, each with the future that its caller awaits,
        # and whether it may be sent again.
        self._outbox: dict[int, tuple[str, asyncio.Future[None], bool]] = {}
        # For each message that was sent, its caller's future and one that is done on `retry`.
        self._answers: dict[int, tuple[asyncio.Future[None], asyncio.Future[None]]] = {}
        self._last_reference = 0
        self._has_work = asyncio.Event()
        self._is_active = True
        self._is_online = False
        self._failures = 0
        self._drain_delay = 0.0
        self._trouble = "no answer"
        # Tests replace it.
        self._pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __repr__(self) -> str:
        return f"Inbox({self._place!r}, unread={self.unread}, online={self.online})"

    @property
    def items(self) -> list[Notification]:
        """The notifications, newest first: the newest 100 unread at first, then what comes."""
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
        """How many arrivals and events were dropped because nothing took them."""
        return self._arrivals.dropped + self._events.dropped

    def arrivals(self) -> AsyncIterator[Notification]:
        """Yields new notifications, also those that came during a lost connection.

        Two loops share the arrivals: each goes to one of them. After a gap of more than 500 changes
        the arrivals are the newest 100 unread; `GET /v1/notifications` has the rest.

        After a lost connection or a `resume`, an old notification that this inbox never had also
        comes if the user marked it unread or brought it back meanwhile.
        """
        return self._arrivals

    def events(self) -> AsyncIterator[EphemeralEvent]:
        """Yields ephemeral events. One that is sent during a lost connection is lost."""
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

        Waits for a connection, and until the gateway has made the change. Give many ids in one
        call: the inbox sends about 16 messages a second, each with up to 1,000 ids.

        Raises:
            InboxError: an id is no notification id, or 1,000 calls wait already.
            TypeError: an id is no string.
        """
        names = [ids] if isinstance(ids, str) else list(ids)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"ids: must be strings, not {type(name).__name__}; give `notification.id`")
        for first in range(0, len(names), _MOST_IDS):
            await self._ask({"type": "read", "ids": names[first : first + _MOST_IDS]})
        # The change and its answer come in any order.
        try:
            await asyncio.wait_for(self._until(lambda: self._state.are_read(names)), 5)
        except asyncio.TimeoutError:
            pass

    async def read_all(self) -> None:
        """Marks everything as read that is in the inbox when the gateway takes the message.

        Does not wait for a connection, and is not sent again: what came meanwhile would be marked,
        too.

        Raises:
            InboxError: the inbox is not online, the connection ended before the answer, the gateway
                cannot make the change now, or 1,000 calls wait already.
        """
        await self._ask({"type": "read", "all": True}, is_repeatable=False)

    async def focus(self, active: bool) -> None:
        """Says whether the user looks at the app. A user who does not gets pushes after a while."""
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
        """Sends a message now or, if it is repeatable, on the next connection; awaits its answer.

        Raises:
            InboxError: the message is too long, the gateway refused it, or too many calls wait; or
                one that is not repeatable has no connection, loses it, or cannot be handled now.
        """
        self._require_open()
        if not (is_repeatable or self._is_online):
            raise InboxError("the inbox is not online; call again when it is")
        if len(self._outbox) >= _MOST_CALLS:
            raise InboxError(f"{_MOST_CALLS:,} calls wait for the gateway; wait until some are done")
        self._last_reference += 1
        reference = self._last_reference
        text = json.dumps({**message, "ref": reference})
        # The gateway would close the socket, and the next connection would send it again.
        if len(text) > _MOST_MESSAGE_BYTES:
            raise InboxError("ids: longer than 64 KB together; a notification id has 36 characters")
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outbox[reference] = (text, answer, is_repeatable)
        self._has_work.set()
        try:
            await answer
        finally:
            del self._outbox[reference]

    def _refuse_late(self, reason: str) -> None:
        """Ends the calls whose messages must not be sent later."""
        for _, answer, is_repeatable in self._outbox.values():
            if not (is_repeatable or answer.done()):
                answer.set_exception(InboxError(reason))

    def _note_change(self) -> None:
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def _run(self) -> None:
        """Keeps the inbox connected until it ends, then tells everyone who waits."""
        end: Exception | None = None
        try:
            refused = False
            while True:
                refused = await self._connect(refused)
                self._refuse_late("the connection ended before the answer; call again")
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
            for waiting in [*self._watchers, *(answer for _, answer, _ in self._outbox.values())]:
                if not waiting.done():
                    waiting.set_exception(self._end)

    async def _connect(self, refused: bool) -> bool:
        """Serves one connection, and returns whether the token needs to be replaced."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

        class Connect(connect):
            """Follows no redirect: some versions would send the token to any host."""

            def process_redirect(self, exc: Exception) -> Exception:
                return exc

        try:
            token = await self._fetch(refused)
        except SignedOut:
            raise
        except Exception:
            logger.exception("the token provider failed")
            self._trouble = "the token provider failed"
            return refused
        try:
            header = authorization(token)
        except ValueError:
            # The text may be cached, such as an error page.
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
                ssl=self._context if self._address.startswith("wss:") else None,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            self._trouble = f"the gateway answered {status}: {parse_problem(error.response.body)[0]}"
            return status == 401
        except (OSError, asyncio.TimeoutError, WebSocketException) as error:
            self._trouble = f"no connection: {error or type(error).__name__}"
            return False
        helpers = [asyncio.create_task(work) for work in (self._pump(socket), self._renew(socket, token))]
        self._socket = socket
        try:
            async for text in socket:
                self._take(json.loads(text, parse_int=_parse_integer))
        except ConnectionClosed:
            pass
        finally:
            self._socket = None
            self._is_online = False
            self._answers.clear()
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await socket.close()
            self._note_change()
        self._trouble = f"the socket closed with {socket.close_code} {socket.close_reason}".rstrip()
        if socket.close_code == _TOO_MANY_CONNECTIONS:
            raise Displaced("the user has too many newer connections; open the inbox again when the user returns")
        return socket.close_code == _UNAUTHORIZED

    async def _fetch(self, refused: bool) -> str:
        if isinstance(self._token, str):
            if refused:
                raise SignedOut("the gateway refused the token; give a function that returns a fresh one")
            return self._token.strip()
        if self._token_call is None or self._token_call.done():
            self._token_call = asyncio.create_task(self._call_provider(self._token, refused))
            # After a lost connection, asyncio would log its error as never retrieved.
            self._token_call.add_done_callback(lambda call: call.cancelled() or call.exception())
        return await asyncio.shield(self._token_call)

    async def _call_provider(self, provider: Callable[[bool], Any], refused: bool) -> str:
        is_async = inspect.iscoroutinefunction(provider)
        answer = provider(refused) if is_async else await asyncio.to_thread(provider, refused)
        token = await answer if inspect.isawaitable(answer) else answer
        if not token:
            raise SignedOut("the token provider has no token")
        return str(token).strip()

    async def _pump(self, socket: ClientConnection) -> None:
        """Sends the messages of the outbox, one at a time.

        Sends a repeatable message again if the last connection brought no answer, or if the gateway
        asks for it.
        """
        if not self._is_active:
            await self._say(socket, json.dumps({"type": "focus", "active": False}))
        failures = 0
        while True:
            while not self._outbox:
                self._has_work.clear()
                await self._has_work.wait()
            reference, (text, answer, _) = next(iter(self._outbox.items()))
            busy: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._answers[reference] = (answer, busy)
            await self._say(socket, text)
            await asyncio.wait([answer, busy], return_when=asyncio.FIRST_COMPLETED)
            if busy.done():
                self._refuse_late(_NOT_NOW)
                await self._pause(_backoff(failures))
                # The calls that came meanwhile.
                self._refuse_late(_NOT_NOW)
            failures = failures + 1 if busy.done() else 0
            # Meanwhile the caller removes a message that was answered.
            await asyncio.sleep(_SPACING)

    async def _renew(self, socket: ClientConnection, token: str) -> None:
        """Sends a fresh token before the current one expires. Without one, the gateway closes."""
        expiry, least = token_expiry(token), 1.0
        while expiry is not None:
            half = token_life(token) / 2
            left = expiry - time.time()
            await self._pause(max(1.0, left - min(_RENEWAL_LEAD, half), min(least, half)))
            try:
                token = await self._fetch(True)
                authorization(token)
            except Exception as error:  # noqa: BLE001, it is the provider's
                logger.warning("cannot renew the token before it expires: %s", type(error).__name__)
                return
            fresh = token_expiry(token)
            if fresh is not None and fresh <= expiry:
                logger.warning("cannot renew the token before it expires: the provider returned an old one")
                return
            expiry, least = fresh, _RENEWAL_SPACING
            await self._say(socket, json.dumps({"type": "auth", "token": token}))

    async def _say(self, socket: ClientConnection, text: str) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await socket.send(text)
        except ConnectionClosed:
            # The reader sees the close, too.
            pass

    def _take(self, frame: dict[str, Any]) -> None:
        is_answer = frame.get("ref") in self._answers
        answer, busy = self._answers.pop(frame["ref"]) if is_answer else (None, None)
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
            # Its count may be older than the last change's.
            case "unread" if answer and not answer.done():
                answer.set_result(None)
            case "error" if busy and frame.get("retry"):
                busy.set_result(None)
            case "error" if answer and not answer.done():
                answer.set_exception(InboxError(frame["reason"]))
            case "error":
                logger.warning("the gateway refused a message: %s", frame["reason"])
