# Carillon · test_tokens.py
# SPDX-License-Identifier: Apache-2.0

import asyncio
import base64
import json
import random
import time
import unittest
from unittest import mock

from fake_gateway import Gateway, InboxTestCase, Script, closing, hold, opening
from test_state import arrival, notification, sync
from websockets.asyncio.server import ServerConnection

from carillon import Inbox, SignedOut


def token(issued_at: float, life: float) -> str:
    claims = json.dumps({"sub": "ada", "iat": issued_at, "exp": issued_at + life}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.{random.random()}"


class TokenTests(InboxTestCase):
    async def test_a_refused_token_is_replaced(self) -> None:
        asked: list[bool] = []

        async def provide(refused: bool) -> str:
            asked.append(refused)
            if len(asked) == 3:
                raise OSError("the login server is away")
            return "<p>\nan error page" if len(asked) == 4 else f"t{len(asked)}"

        scripts: list[Script | int] = [401, closing(4401, sync(0)), opening(sync(1, notification(1)))]
        async with Gateway(*scripts) as gateway, Inbox(gateway.url, provide) as inbox:
            await self.take(inbox, 1)
            self.assertEqual(gateway.tokens, ["t1", "t2", "t5"])
        self.assertEqual(asked, [False, True, True, True, True])

    async def test_a_cached_text_that_cannot_be_a_token_is_replaced(self) -> None:
        asked: list[bool] = []

        async def provide(refused: bool) -> str:
            asked.append(refused)
            if len(asked) == 2:
                raise OSError("the login server is away")
            return "t" if refused else "<p>\nan error page"

        async with Gateway(opening(sync(0), arrival(1, 1))) as gateway, Inbox(gateway.url, provide) as inbox:
            await self.take(inbox, 1)
            self.assertEqual(gateway.tokens, ["t"])
        self.assertEqual(asked, [False, True, True])

    async def test_without_a_fresh_token_it_ends(self) -> None:
        for provider in ("t", lambda refused: None if refused else "t"):
            async with Gateway(401) as gateway:
                with self.assertRaises(SignedOut):
                    async with Inbox(gateway.url, provider):
                        pass

    async def test_a_token_is_renewed_before_it_expires(self) -> None:
        self.assertEqual(await self.renewal_waits(3_600), [3_540, 3_540, 3_540])

    async def test_a_short_token_is_renewed_at_half_of_its_life(self) -> None:
        self.assertEqual(await self.renewal_waits(60), [30, 30, 30])
        self.assertEqual(await self.renewal_waits(20), [10, 10, 10])

    async def test_a_clock_that_is_ahead_does_not_renew_without_pause(self) -> None:
        self.assertEqual(await self.renewal_waits(3_600, clock_ahead=7_200), [1, 30, 30])
        self.assertEqual(await self.renewal_waits(20, clock_ahead=7_200), [1, 10, 10])

    async def test_a_lost_connection_does_not_cancel_a_renewal(self) -> None:
        asked: list[bool] = []
        renews, may_end = asyncio.Event(), asyncio.Event()

        async def provide(refused: bool) -> str:
            asked.append(refused)
            if len(asked) > 1:
                renews.set()
                await may_end.wait()
            return token(time.time(), 3_600) if len(asked) == 1 else "fresh"

        async def pause(_: float) -> None:
            if renews.is_set():
                # The inbox then reconnects and needs a token.
                asyncio.get_running_loop().call_soon(may_end.set)

        async def close(socket: ServerConnection) -> None:
            await renews.wait()
            await socket.close(1011)

        async with Gateway(opening(sync(0), then=close), opening(sync(1, notification(1)))) as gateway:
            inbox = Inbox(gateway.url, provide)
            inbox._pause = pause
            async with inbox:
                await self.take(inbox, 1)
        self.assertEqual((gateway.tokens[1:], asked), (["fresh"], [False, True]))

    async def renewal_waits(self, life: float, clock_ahead: float = 0) -> list[float]:
        """Returns the seconds before each of three renewals of tokens with this life."""
        now = 1_800_000_000.0
        waits: list[float] = []
        tokens: list[str] = []
        asked: list[bool] = []
        renewed = asyncio.Event()

        async def wait(seconds: float) -> None:
            nonlocal now
            if len(waits) == 3:
                await asyncio.Event().wait()
            waits.append(seconds)
            now += seconds

        async def provide(refused: bool) -> str:
            asked.append(refused)
            tokens.append(token(now, life))
            return tokens[-1]

        async def listen(socket: ServerConnection) -> None:
            for _ in range(3):
                await gateway.hear(socket)
            renewed.set()
            await hold(socket)

        gateway = Gateway(opening(sync(0), then=listen))
        with mock.patch("carillon.tokens.time.time", side_effect=lambda: now + clock_ahead):
            async with gateway:
                inbox = Inbox(gateway.url, provide)
                inbox._pause = wait
                async with inbox:
                    await self.soon(renewed.wait())
        self.assertEqual(asked, [False, True, True, True])
        self.assertEqual(gateway.heard, [{"type": "auth", "token": fresh} for fresh in tokens[1:]])
        return waits


if __name__ == "__main__":
    unittest.main()
