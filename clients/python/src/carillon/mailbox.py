# Carillon · mailbox.py
# SPDX-License-Identifier: Apache-2.0
"""A bounded queue between an inbox and the loops that read from it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

Item = TypeVar("Item")
logger = logging.getLogger("carillon.client")


class Mailbox(AsyncIterator[Item], Generic[Item]):
    """A bounded queue that drops the oldest item when it is full, and counts it in `dropped`."""

    def __init__(self, limit: int, name: str) -> None:
        self.dropped = 0
        self._limit, self._name = limit, name
        self._items: deque[Item] = deque()
        self._event = asyncio.Event()
        self._is_read = False
        self._is_ended = False
        self._error: Exception | None = None

    def put(self, item: Item) -> None:
        """Adds an item."""
        if len(self._items) == self._limit:
            self._items.popleft()
            # Do not warn a program that never reads this mailbox.
            if self._is_read and not self.dropped:
                logger.warning("%s: %d wait; dropping the oldest, read them faster", self._name, self._limit)
            self.dropped += 1
        self._items.append(item)
        self._event.set()

    def end(self, error: Exception | None) -> None:
        """Ends the loops after they have read the waiting items; they raise the error, if any."""
        self._is_ended, self._error = True, error
        self._event.set()

    def __aiter__(self) -> Self:
        self._is_read = True
        return self

    async def __anext__(self) -> Item:
        while not self._items:
            if self._is_ended:
                raise self._error or StopAsyncIteration
            self._event.clear()
            await self._event.wait()
        return self._items.popleft()
