# Carillon · stack.py
# SPDX-License-Identifier: Apache-2.0
"""Exercises the package against a running stack, such as that of `deploy/up`.

Needs `GATEWAY_URL`, `REDIS_URL`, `SERVICE_TOKEN` and `USER_TOKEN` in the environment, the types
`payment_received` and `invoice_created` in the catalog, and for its last step a stack with
`WEBHOOKS_PRIVATE=on`. The user of `USER_TOKEN` should have no other clients. Prints a line for each
step, then `done`; exits with 1 at the first failure.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Awaitable
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, TypeVar

import redis
import redis.asyncio

from carillon import (
    AsyncProducer,
    HTTPProducer,
    Inbox,
    InvalidJob,
    InvalidSignature,
    Job,
    Notification,
    Producer,
    Refused,
    StaleSignature,
    verify,
)
from carillon.moments import token_claims

GATEWAY_URL = os.environ["GATEWAY_URL"]
REDIS_URL = os.environ["REDIS_URL"]
SERVICE_TOKEN = os.environ["SERVICE_TOKEN"]
USER_TOKEN = os.environ["USER_TOKEN"]
USER = str(token_claims(USER_TOKEN)["sub"])
# Seconds; long, so that only a failure ends a step on a busy machine.
PATIENCE = 60.0
# Makes the ids of each run its own.
RUN = uuid.uuid4().hex[:8]

Value = TypeVar("Value")


async def soon(work: Awaitable[Value]) -> Value:
    return await asyncio.wait_for(work, PATIENCE)


def call(method: str, path: str, body: Any = None) -> Any:
    """Calls the gateway as a service, and returns the JSON of the answer."""
    headers = {"Authorization": f"Bearer {SERVICE_TOKEN}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(GATEWAY_URL + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def payment(name: str, **more: Any) -> Job:
    return Job(user=USER, type="payment_received", id=f"{RUN}:{name}", title=name, **more)


def redis_clients() -> tuple[Any, Any, bool]:
    """Returns a client, one for asyncio, and whether Redis is a cluster."""
    if REDIS_URL.startswith("redis+cluster://"):
        host, _, port = REDIS_URL.removeprefix("redis+cluster://").split("/")[0].split(",")[0].rpartition(":")
        kwargs: Any = {"host": host, "port": int(port)}
        return redis.RedisCluster(**kwargs), redis.asyncio.RedisCluster(**kwargs), True
    return redis.Redis.from_url(REDIS_URL), redis.asyncio.Redis.from_url(REDIS_URL), False


def check_fields() -> None:
    """`Job` has the fields that the gateway describes."""
    schema = call("GET", "/openapi.json")["components"]["schemas"]["Job"]["properties"]
    assert {field.name.rstrip("_") for field in fields(Job)} == set(schema), "the fields of a job differ"


def check_http(http: HTTPProducer) -> None:
    accepted = http.send(payment("http"))
    assert (accepted.id, accepted.lane) == (f"{RUN}:http", "critical"), accepted
    typo = Job(user=USER, type="payment_recieved", id=f"{RUN}:typo")
    try:
        http.send_many([payment("not sent either"), typo])
    except InvalidJob as error:
        assert str(error) == "[1].type: is not in the catalog", error
    else:
        raise AssertionError("a type that is not in the catalog was accepted")
    with HTTPProducer(GATEWAY_URL, USER_TOKEN) as user:
        try:
            user.send(payment("no service"))
        except Refused as error:
            assert error.status == 403 and USER_TOKEN not in str(error), error
        else:
            raise AssertionError("a user's token may send")


class Arrivals:
    """The arrivals of an inbox, each of which must come once."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.by_title: dict[str, Notification] = {}

    async def wait_for(self, titles: set[str]) -> None:
        while not titles <= self.by_title.keys():
            arrival = await soon(self.inbox.arrivals().__anext__())
            assert arrival.title not in self.by_title, f"{arrival.title} came twice"
            self.by_title[arrival.title] = arrival


async def until_unread(inbox: Inbox, count: int) -> None:
    while inbox.unread != count:
        await soon(inbox.changed())


class Provider:
    """Returns a bad token first, then the user's."""

    def __init__(self) -> None:
        self.calls: list[bool] = []

    async def __call__(self, refused: bool) -> str:
        self.calls.append(refused)
        return USER_TOKEN if refused else "not.a.token"


async def check_inbox(http: HTTPProducer) -> None:
    client, aio, is_cluster = redis_clients()
    provider = Provider()
    async with (
        aio,
        Inbox(GATEWAY_URL, provider, most_waiting=5_000) as inbox,
        Inbox(GATEWAY_URL, USER_TOKEN) as other,
    ):
        assert provider.calls == [False, True], provider.calls
        print("a fresh token replaces a refused one")
        await inbox.read_all()
        await until_unread(inbox, 0)
        await until_unread(other, 0)
        print("read_all empties the unread count on both clients")

        producer = Producer(client, spread=is_cluster)
        await asyncio.to_thread(producer.send, payment("redis", data={"größe": 1}, badge=3))
        await AsyncProducer(aio, spread=is_cluster).send(payment("asyncio"))
        await asyncio.to_thread(http.send, payment("again"))
        await asyncio.to_thread(http.send, payment("again"))
        arrivals = Arrivals(inbox)
        await arrivals.wait_for({"redis", "asyncio", "again"})
        assert arrivals.by_title["redis"].data == {"größe": 1}
        print("jobs through Redis, asyncio and HTTP arrive, a repeated one once")

        many = [
            Job(user=USER, type="invoice_created", lane="bulk", id=f"{RUN}:{number}", title=str(number))
            for number in range(1_200)
        ]
        assert await asyncio.to_thread(producer.send_many, many) == len(many)
        await arrivals.wait_for({str(number) for number in range(len(many))})
        print("1,200 jobs in pipelines arrive once each")

        ids = [item.id for item in inbox.items]
        await soon(inbox.read(ids[:600]))
        assert all(item.read_at for item in inbox.items[:600]) and not inbox.items[700].read_at
        await until_unread(other, inbox.unread)
        await soon(inbox.read_all())
        await until_unread(other, 0)
        print("read marks notifications on both clients")

        await asyncio.to_thread(http.send, Job(user=USER, event="rates", args=[1, {"usd": 2}]))
        event = await soon(inbox.events().__anext__())
        assert (event.name, event.args) == ("rates", [1, {"usd": 2}]), event
        assert inbox.dropped == 0
        print("an ephemeral event arrives")
        version = inbox.version

    await asyncio.to_thread(http.send, payment("while away"))
    async with Inbox(GATEWAY_URL, lambda refused: USER_TOKEN, resume=version) as inbox:
        await Arrivals(inbox).wait_for({"while away"})
        assert [item.title for item in inbox.items] == ["while away"]
        await soon(inbox.read([inbox.items[0].id]))
        assert inbox.unread == 0
    print("an inbox that resumes gets what it missed")


def refusal(body: bytes, headers: dict[str, str], secret: str, tolerance: float = 300) -> type | None:
    """Returns the class of the error, if there is one."""
    try:
        verify(body, headers, secret, tolerance=tolerance)
    except InvalidSignature as error:
        return type(error)
    return None


def check_webhook(http: HTTPProducer) -> None:
    requests: queue.Queue[tuple[bytes, dict[str, str]]] = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.put((self.rfile.read(int(self.headers["Content-Length"])), dict(self.headers)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        webhook = call("POST", "/v1/webhooks", {"url": f"http://127.0.0.1:{server.server_port}/"})
    except urllib.error.HTTPError as error:
        assert error.code == 422, error
        print("skipped: the stack allows no webhooks on this machine (WEBHOOKS_PRIVATE)")
        return
    try:
        for number in range(int(PATIENCE * 2)):
            # Dispatchers learn of a new webhook within seconds.
            http.send(payment(f"webhook {number}"))
            try:
                body, headers = requests.get(timeout=0.5)
                break
            except queue.Empty:
                pass
        else:
            raise AssertionError("no webhook came")
        events = verify(body, headers, ["an old secret", webhook["secret"]])
        assert any(event.user == USER and event.type == "payment_received" for event in events), events
        assert refusal(body + b" ", headers, webhook["secret"]) is InvalidSignature
        assert refusal(body, headers, "another secret") is InvalidSignature
        assert refusal(body, headers, webhook["secret"], tolerance=-1) is StaleSignature
    finally:
        call("DELETE", f"/v1/webhooks/{webhook['id']}")
        server.shutdown()
        server.server_close()
    print("a webhook's signature is verified")


def main() -> None:
    check_fields()
    print("Job has the gateway's fields")
    with HTTPProducer(GATEWAY_URL, SERVICE_TOKEN) as http:
        check_http(http)
        print("HTTPProducer sends, and names every fault")
        asyncio.run(check_inbox(http))
        check_webhook(http)
    print("done")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
