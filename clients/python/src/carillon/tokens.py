# Carillon · tokens.py
# SPDX-License-Identifier: Apache-2.0
"""The token of an inbox, and its renewal."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from carillon.errors import SignedOut
from carillon.gateway import authorization
from carillon.moments import token_expiry, token_life

TokenProvider = Callable[[bool], str | None | Awaitable[str | None]]

_RENEWAL_LEAD = 60.0
# The device's clock may be ahead, so a fresh token is kept for a while even if it looks expired.
_RENEWAL_SPACING = 30.0

logger = logging.getLogger("carillon.client")


class TokenSource:
    """The user's token, for all connections of an inbox.

    Raises:
        ValueError: no header can hold the token.
    """

    def __init__(self, token: str | TokenProvider) -> None:
        if isinstance(token, str):
            authorization(token)
        self._token = token
        # The last call of the provider. Never cancelled, which could lose a one-time refresh token.
        self._call: asyncio.Task[str] | None = None

    async def fetch(self, refused: bool) -> str:
        """Returns the token, or what the provider returns for `refused`.

        Raises:
            SignedOut: the provider has no token, or the gateway refused the only one.
            Exception: the provider raised it.
        """
        if isinstance(self._token, str):
            if refused:
                raise SignedOut("the gateway refused the token; give a function that returns a fresh one")
            return self._token.strip()
        if self._call is None or self._call.done():
            self._call = asyncio.create_task(self._call_provider(self._token, refused))
            # Read the error, or asyncio logs it as never retrieved after a lost connection.
            self._call.add_done_callback(lambda call: call.cancelled() or call.exception())
        return await asyncio.shield(self._call)

    async def _call_provider(self, provider: Callable[[bool], Any], refused: bool) -> str:
        is_async = inspect.iscoroutinefunction(provider)
        answer = provider(refused) if is_async else await asyncio.to_thread(provider, refused)
        token = await answer if inspect.isawaitable(answer) else answer
        if not token:
            raise SignedOut("the token provider has no token")
        return str(token).strip()

    async def renew(
        self, token: str, send: Callable[[str], Awaitable[None]], pause: Callable[[float], Awaitable[None]]
    ) -> None:
        """Sends a fresh token to a connection before the current one expires.

        Returns if that fails; the gateway then closes the connection.
        """
        expiry, least = token_expiry(token), 1.0
        while expiry is not None:
            half = token_life(token) / 2
            left = expiry - time.time()
            await pause(max(1.0, left - min(_RENEWAL_LEAD, half), min(least, half)))
            try:
                token = await self.fetch(True)
                authorization(token)
            except Exception as error:  # noqa: BLE001, it is the provider's
                logger.warning("cannot renew the token before it expires: %s", type(error).__name__)
                return
            fresh = token_expiry(token)
            if fresh is not None and fresh <= expiry:
                logger.warning("cannot renew the token before it expires: the provider returned an old one")
                return
            expiry, least = fresh, _RENEWAL_SPACING
            await send(json.dumps({"type": "auth", "token": token}))
