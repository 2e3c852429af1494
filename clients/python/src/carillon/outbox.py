# Carillon · outbox.py
# SPDX-License-Identifier: Apache-2.0
"""The messages from an inbox to the gateway, and their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from carillon.errors import InboxError

_MOST_CALLS = 1_000
# The gateway closes a socket that sends more, with 1009.
_MOST_MESSAGE_BYTES = 64 * 1024
# The gateway takes 20 messages a second from a socket.
_SPACING = 0.06
_NOT_NOW = "the gateway cannot make the change now; call again"


class Outbox:
    """The messages whose callers wait for the gateway's answer, oldest first."""

    def __init__(self) -> None:
        # Messages by reference, oldest first: the text, the future that the caller awaits, and
        # whether the message may be sent again.
        self._messages: dict[int, tuple[str, asyncio.Future[None], bool]] = {}
        # For each sent message: the caller's future, and one for the gateway's answer `retry`.
        self._answers: dict[int, tuple[asyncio.Future[None], asyncio.Future[None]]] = {}
        self._last_reference = 0
        self._has_work = asyncio.Event()

    async def ask(self, message: dict[str, Any], is_repeatable: bool) -> None:
        """Sends a message now or, if it is repeatable, on the next connection; awaits its answer.

        Raises:
            InboxError: the message is too long, the gateway refused it, or too many calls wait; or
                a message that is not repeatable lost its connection, or the gateway said `retry`.
        """
        if len(self._messages) >= _MOST_CALLS:
            raise InboxError(f"{_MOST_CALLS:,} calls wait for the gateway; wait until some are done")
        self._last_reference += 1
        reference = self._last_reference
        text = json.dumps({**message, "ref": reference})
        # Otherwise the gateway would close the socket, and each new connection would send it again.
        if len(text) > _MOST_MESSAGE_BYTES:
            raise InboxError("ids: longer than 64 KB together; a notification id has 36 characters")
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._messages[reference] = (text, answer, is_repeatable)
        self._has_work.set()
        try:
            await answer
        finally:
            del self._messages[reference]

    async def pump(self, send: Callable[[str], Awaitable[None]], back_off: Callable[[int], Awaitable[None]]) -> None:
        """Sends the messages to a connection, one at a time, until it is cancelled.

        Sends a repeatable message again if the last connection brought no answer, or if the gateway
        says `retry`. `back_off` waits; its argument is the number of earlier failures in a row.
        """
        failures = 0
        while True:
            while not self._messages:
                self._has_work.clear()
                await self._has_work.wait()
            reference, (text, answer, _) = next(iter(self._messages.items()))
            busy: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._answers[reference] = (answer, busy)
            await send(text)
            await asyncio.wait([answer, busy], return_when=asyncio.FIRST_COMPLETED)
            if busy.done():
                self._refuse_late(_NOT_NOW)
                await back_off(failures)
                # Calls may have come during the wait.
                self._refuse_late(_NOT_NOW)
            failures = failures + 1 if busy.done() else 0
            # During the sleep, the caller removes its answered message.
            await asyncio.sleep(_SPACING)

    def take(self, frame: dict[str, Any]) -> bool:
        """Passes an `unread` or `error` frame to its caller. Returns whether it had one."""
        if frame.get("ref") not in self._answers:
            return False
        answer, busy = self._answers.pop(frame["ref"])
        if frame["type"] == "error" and frame.get("retry"):
            busy.set_result(None)
        elif answer.done():
            return False
        elif frame["type"] == "error":
            answer.set_exception(InboxError(frame["reason"]))
        else:
            answer.set_result(None)
        return True

    def disconnect(self) -> None:
        """Forgets which messages were sent. Fails the calls that must not be repeated."""
        self._answers.clear()
        self._refuse_late("the connection ended before the answer; call again")

    def end(self, error: Exception) -> None:
        """Fails all calls."""
        for _, answer, _ in self._messages.values():
            if not answer.done():
                answer.set_exception(error)

    def _refuse_late(self, reason: str) -> None:
        """Fails the calls that must not be repeated."""
        for _, answer, is_repeatable in self._messages.values():
            if not (is_repeatable or answer.done()):
                answer.set_exception(InboxError(reason))
