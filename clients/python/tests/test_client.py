# Carillon · test_client.py
# SPDX-License-Identifier: Apache-2.0

import asyncio
import json
import logging
import os
import shutil
import ssl
import tempfile
import unittest
import uuid
from socket import create_server
from unittest import mock

from fake_gateway import Gateway, InboxTestCase, Script, closing, hold, opening, say
from test_state import arrival, change, notification, sync
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Response

from carillon import Displaced, Inbox, InboxError


class InboxTests(InboxTestCase):
    async def test_it_opens_with_the_inbox_and_follows_it(self) -> None:
        frames = [arrival(2, 2), change("read", 3, 1, ids=["001"])]
        event = {"type": "event", "event": {"name": "rates", "args": [1]}}
        async with Gateway(opening(sync(1, notification(1), unread=1), *frames, event)) as gateway:
            async with Inbox(gateway.url, "t") as inbox:
                self.assertEqual(await self.take(inbox, 1), ["2"])
                app_event = await self.soon(inbox.events().__anext__())
                self.assertEqual((app_event.name, app_event.args), ("rates", [1]))
                self.assertEqual((inbox.unread, inbox.version, inbox.online), (1, 3, True))
                self.assertEqual([item.title for item in inbox.items if item.read_at], ["1"])
            self.assertEqual((gateway.paths, gateway.tokens), (["/v1/socket"], ["t"]))
            self.assertEqual([item async for item in inbox.arrivals()], [])

    async def test_a_number_of_many_digits_does_not_end_it(self) -> None:
        async def send(socket: ServerConnection) -> None:
            frame = json.dumps(arrival(1, data={"x": 0})).replace('"x": 0', f'"x": {"9" * 5_000}')
            await socket.send(frame)
            await hold(socket)

        async with Gateway(opening(sync(0), then=send)) as gateway, Inbox(gateway.url, "t") as inbox:
            self.assertEqual((await self.soon(inbox.arrivals().__anext__())).data, {"x": float("inf")})

    async def test_it_resumes_and_loses_nothing(self) -> None:
        scripts: list[Script | int] = [
            closing(1011, sync(1, notification(1)), arrival(2)),
            closing(4408, sync(4, notification(3), notification(4))),
            503,
            opening(sync(5, notification(5))),
        ]
        async with Gateway(*scripts) as gateway, Inbox(gateway.url, "t") as inbox:
            self.assertEqual(await self.take(inbox, 4), ["2", "3", "4", "5"])
            self.assertEqual(gateway.paths[1:], ["/v1/socket?resume=2", *["/v1/socket?resume=4"] * 2])

    async def test_it_waits_as_long_as_a_draining_gateway_says(self) -> None:
        goodbye = {"type": "goodbye", "code": 1012, "reason": "restart", "reconnect_after": 7_000}
        waits: list[float] = []

        async def note(seconds: float) -> None:
            waits.append(round(seconds, 4))

        scripts: list[Script | int] = [
            closing(1012, sync(0), goodbye),
            closing(1001, sync(0)),
            500,
            opening(sync(1, notification(1))),
        ]
        async with Gateway(*scripts) as gateway:
            inbox = Inbox(gateway.url, "t")
            inbox._pause = note
            async with inbox:
                await self.take(inbox, 1)
        self.assertEqual(waits, [7.005, 0.005, 0.01])

    async def test_a_displaced_inbox_ends(self) -> None:
        async with Gateway(closing(4409, sync(0), arrival(1))) as gateway, Inbox(gateway.url, "t") as inbox:
            self.assertEqual(await self.take(inbox, 1), ["1"])
            for call in (inbox.arrivals().__anext__, inbox.events().__anext__, inbox.read_all, inbox.changed):
                with self.assertRaises(Displaced):
                    await self.soon(call())

    async def test_read_waits_for_the_answer_and_the_change(self) -> None:
        async def answer(socket: ServerConnection) -> None:
            while True:
                message = await gateway.hear(socket)
                if message["ids"] == ["bad"]:
                    await say(
                        socket, {"type": "error", "reason": "ids must hold notification ids", "ref": message["ref"]}
                    )
                    continue
                await say(socket, {"type": "unread", "unread": 9, "ref": message["ref"]})
                await asyncio.sleep(0.05)
                await say(socket, change("read", 2, 0, ids=message["ids"]))

        gateway = Gateway(opening(sync(1, notification(1), unread=1), then=answer))
        async with gateway, Inbox(gateway.url, "t") as inbox:
            with self.assertRaisesRegex(InboxError, "ids must hold notification ids"):
                await self.soon(inbox.read(["bad"]))
            await self.soon(inbox.read(["001"]))
            self.assertEqual((inbox.unread, inbox.items[0].read_at is None), (0, False))
            await self.soon(inbox.read(f"{number}" for number in range(1_001)))
            await self.soon(inbox.read([]))
        self.assertEqual([len(message["ids"]) for message in gateway.heard], [1, 1, 1_000, 1])

    async def test_what_the_gateway_cannot_take_is_refused_and_stops_no_other_call(self) -> None:
        async def answer(socket: ServerConnection) -> None:
            message = await gateway.hear(socket)
            await say(socket, {"type": "unread", "unread": 0, "ref": message["ref"]})
            await hold(socket)

        gateway = Gateway(opening(sync(0), then=answer))
        async with gateway, Inbox(gateway.url, "t") as inbox:
            with self.assertRaisesRegex(TypeError, "ids: must be strings, not UUID"):
                await self.soon(inbox.read(["001", uuid.uuid4()]))  # type: ignore[list-item]
            with self.assertRaisesRegex(InboxError, "ids: longer than 64 KB together"):
                await self.soon(inbox.read(["long" * 20_000]))
            await self.soon(inbox.read(["001"]))
        self.assertEqual([message["ids"] for message in gateway.heard], [["001"]])
        self.assertEqual(len(gateway.paths), 1)

    async def test_a_read_without_an_answer_is_sent_again(self) -> None:
        async def hang_up(socket: ServerConnection) -> None:
            await gateway.hear(socket)
            await socket.close(1011)

        async def answer(socket: ServerConnection) -> None:
            await gateway.hear(socket)
            message = await gateway.hear(socket)
            await say(socket, {"type": "unread", "unread": 0, "ref": message["ref"]})
            await hold(socket)

        gateway = Gateway(opening(sync(0), then=hang_up), opening(sync(0), then=answer))
        async with gateway, Inbox(gateway.url, "t") as inbox:
            await inbox.focus(False)
            await self.soon(inbox.read(["001"]))
        focus = {"type": "focus", "active": False}
        self.assertEqual(gateway.heard[0], focus)
        self.assertEqual(gateway.heard[1:], [focus, {"type": "read", "ids": ["001"], "ref": 1}])

    async def test_a_read_of_all_is_not_sent_on_the_next_connection(self) -> None:
        async def hang_up(socket: ServerConnection) -> None:
            await gateway.hear(socket)
            await socket.close(1011)

        async def answer(socket: ServerConnection) -> None:
            message = await gateway.hear(socket)
            await say(socket, {"type": "unread", "unread": 0, "ref": message["ref"]})
            await hold(socket)

        is_free = asyncio.Event()

        async def wait(seconds: float) -> None:
            await is_free.wait()

        gateway = Gateway(opening(sync(0), then=hang_up), opening(sync(0), then=answer))
        async with gateway:
            inbox = Inbox(gateway.url, "t")
            inbox._pause = wait
            async with inbox:
                with self.assertRaisesRegex(InboxError, "the connection ended before the answer"):
                    await self.soon(inbox.read_all())
                with self.assertRaisesRegex(InboxError, "not online"):
                    await self.soon(inbox.read_all())
                is_free.set()
                await self.soon(inbox.read(["001"]))
        self.assertEqual([message.get("ids") for message in gateway.heard], [None, ["001"]])

    async def test_a_read_is_sent_again_until_the_gateway_can_make_it(self) -> None:
        async def answer(socket: ServerConnection) -> None:
            for _ in range(2):
                message = await gateway.hear(socket)
                await say(socket, {"type": "error", "reason": "not now", "retry": True, "ref": message["ref"]})
            message = await gateway.hear(socket)
            await say(socket, {"type": "unread", "unread": 0, "ref": message["ref"]})
            await hold(socket)

        gateway = Gateway(opening(sync(0), then=answer))
        async with gateway, Inbox(gateway.url, "t") as inbox:
            await self.soon(inbox.read(["001"]))
        self.assertEqual(gateway.heard, [{"type": "read", "ids": ["001"], "ref": 1}] * 3)

    async def test_a_read_of_all_is_not_sent_later_when_the_gateway_cannot_make_changes(self) -> None:
        async def answer(socket: ServerConnection) -> None:
            while True:
                message = await gateway.hear(socket)
                await say(socket, {"type": "error", "reason": "not now", "retry": True, "ref": message["ref"]})

        gateway = Gateway(opening(sync(0), then=answer))
        async with gateway, Inbox(gateway.url, "t") as inbox:
            with self.assertRaisesRegex(InboxError, "cannot make the change now"):
                await self.soon(inbox.read_all())
            read = asyncio.create_task(inbox.read(["001"]))
            await asyncio.sleep(0)
            with self.assertRaisesRegex(InboxError, "cannot make the change now"):
                await self.soon(inbox.read_all())
            read.cancel()
            await asyncio.gather(read, return_exceptions=True)
        self.assertEqual([message["ref"] for message in gateway.heard if "all" in message], [1])

    async def test_too_many_calls_are_refused_until_some_have_ended(self) -> None:
        async def answer(socket: ServerConnection) -> None:
            await gateway.hear(socket)
            message = await gateway.hear(socket)
            await say(socket, {"type": "unread", "unread": 0, "ref": message["ref"]})
            await hold(socket)

        gateway = Gateway(opening(sync(0), then=answer))
        async with gateway, Inbox(gateway.url, "t") as inbox:
            with mock.patch("carillon.outbox._MOST_CALLS", 10):
                calls = [asyncio.create_task(inbox.read_all()) for _ in range(10)]
                await asyncio.sleep(0)
                with self.assertRaisesRegex(InboxError, "10 calls wait"):
                    await self.soon(inbox.read_all())
                while not gateway.heard:
                    await asyncio.sleep(0.01)
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
                await self.soon(inbox.read_all())
        self.assertEqual([message["ref"] for message in gateway.heard], [1, 11])

    async def test_a_redirect_does_not_take_the_token_elsewhere(self) -> None:
        async with Gateway() as elsewhere:
            redirect = Response(302, "", Headers(Location=elsewhere.url.replace("http", "ws", 1)))
            async with Gateway(redirect, opening(sync(0))) as gateway, Inbox(gateway.url, "t"):
                pass
        self.assertEqual((gateway.tokens, elsewhere.paths), (["t", "t"], []))

    async def test_a_slow_reader_loses_the_oldest_arrivals(self) -> None:
        frames = [arrival(number) for number in range(1, 7)]
        gateway = Gateway(opening(sync(0), *frames))
        async with gateway, Inbox(gateway.url, "t", most_waiting=4) as inbox:
            while inbox.version != 6:
                await self.soon(inbox.changed())
            self.assertEqual((await self.take(inbox, 4), inbox.dropped), (["3", "4", "5", "6"], 2))
            self.assertEqual(len(inbox.items), 6)

    async def test_no_inbox_in_time_says_why(self) -> None:
        async with Gateway(*[503] * 100) as gateway:
            with self.assertRaisesRegex(TimeoutError, "no inbox from http://.* in 0.01 s: "):
                async with Inbox(gateway.url, "t", ready_timeout=0.01):
                    pass
            with self.assertRaisesRegex(TimeoutError, "in 30.0 s: the gateway answered 503: no reason given"):
                async with self.giving_up(Inbox(gateway.url, "t")):
                    pass

    async def test_an_https_address_needs_no_context(self) -> None:
        with create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with self.assertRaisesRegex(TimeoutError, "no inbox from https://.* in 30.0 s: no connection: "):
            async with self.giving_up(Inbox(f"https://127.0.0.1:{port}", "t")):
                pass

    @unittest.skipUnless(shutil.which("openssl"), "needs openssl")
    async def test_it_trusts_the_authorities_of_the_system_or_of_its_context(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = os.path.join(folder, "certificate"), os.path.join(folder, "key")
            options = f"-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout {key} -out {certificate}"
            command = ["openssl", "req", *options.split(), "-addext", "subjectAltName=IP:127.0.0.1"]
            process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
            self.assertEqual(await process.wait(), 0)
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate, key)
            async with Gateway(opening(sync(0)), opening(sync(0)), tls=tls) as gateway:
                async with Inbox(gateway.url, "t", context=ssl.create_default_context(cafile=certificate)):
                    pass
                with mock.patch.dict(os.environ, SSL_CERT_FILE=certificate):
                    async with Inbox(gateway.url, "t"):
                        pass
                # The server would log the refused handshakes.
                silence = mock.patch.object(logging.getLogger("asyncio"), "disabled", True)
                with silence, self.assertRaisesRegex(TimeoutError, "CERTIFICATE_VERIFY_FAILED"):
                    async with self.giving_up(Inbox(gateway.url, "t")):
                        pass
        self.assertEqual(gateway.tokens, ["t", "t"])

    async def test_a_closed_inbox_says_so(self) -> None:
        async with Gateway(opening(sync(0))) as gateway:
            inbox = Inbox(gateway.url, "t")
            with self.assertRaisesRegex(InboxError, "is not open"):
                await inbox.read_all()
            async with inbox:
                pass
            for call in (inbox.read_all, inbox.changed):
                with self.assertRaisesRegex(InboxError, "is closed"):
                    await call()
            with self.assertRaisesRegex(InboxError, "was open before"):
                async with inbox:
                    pass

    async def test_no_text_holds_the_token(self) -> None:
        lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
        logger = logging.getLogger()
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logging.getLogger("carillon.client").setLevel(logging.DEBUG)
        try:
            async with Gateway(401, opening(sync(0))) as gateway:
                gateway.server.logger.setLevel(logging.INFO)
                async with Inbox(gateway.url, lambda refused: "a-secret-token") as inbox:
                    lines.append(repr(inbox))
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
        self.assertTrue(any("the gateway answered 401: no reason given; reconnecting" in line for line in lines), lines)
        self.assertFalse(any("a-secret-token" in line for line in lines), lines)
        with self.assertRaises(ValueError) as caught:
            Inbox("http://a", "a-secret\ntoken")
        self.assertNotIn("secret", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
