# Carillon · signalr_pysignalr.py
# SPDX-License-Identifier: Apache-2.0
#
# usage: signalr_pysignalr.py conformance URL
#        signalr_pysignalr.py gateway URL TOKEN TITLE
#        signalr_pysignalr.py stay URL TOKEN [FRESH]
#
# conformance: tests the hub of the conformance program. gateway: waits for a notification with
# TITLE and marks it read. Both print "ok" and exit with 0, or print an error and exit with 1.
# stay: prints "open" for each connection, "received TITLE" for each notification and "unread COUNT"
# for each count until it is killed, across restarts of the gateway. Once it was open, it reconnects
# with the token FRESH, if given.

import asyncio
import os
import sys

from aiohttp import ClientConnectionError
from pysignalr.client import SignalRClient

# The longest wait in seconds; long, so that only a failure ends it on a busy machine.
PATIENCE = 200


async def until(condition, what):
    for _ in range(PATIENCE * 20):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"timed out: {what}")


async def conformance(client):
    received, results, items, refusals, errors = [], [], [], [], []

    async def on_receive(arguments):
        received.append(arguments)

    async def on_result(message):
        results.append(message.result)
        if message.error:
            errors.append(message.error)

    async def on_item(item):
        items.append(item)

    async def on_done(_):
        items.append("done")

    client.on("Receive", on_receive)
    await client.send("Echo", ["päckchen"], on_result)
    await client.send("Add", [40, 2], on_result)
    await until(lambda: results == ["päckchen", 42], "results")
    await until(lambda: received == [["päckchen"]], "Receive")

    await client.stream("Stream", [250], on_item, on_done, on_done)
    await until(lambda: items == [*range(250), "done"], "the stream")
    await client.stream("Add", [40, 2], on_error=lambda message: note(refusals, message.error))
    await until(lambda: refusals, "the refusal of a stream")
    if "'Add'" not in refusals[0]:
        raise SystemExit(f"the refusal does not name the method: {refusals}")
    client.on_error(lambda message: note(errors, message.error))
    await client.send("Nonsense", [], on_result)
    await until(lambda: errors, "an error")
    if "Nonsense" not in errors[0]:
        raise SystemExit(f"the error does not name the method: {errors}")


async def note(errors, error):
    errors.append(error)


async def gateway(client, title):
    received, counts, results, read = [], [], [], []

    async def on_received(arguments):
        received.extend(arguments)

    async def on_count(arguments):
        counts.extend(arguments)

    async def on_read(arguments):
        read.extend(arguments)

    async def on_result(message):
        results.append(message.result)

    client.on("ReceiveNotification", on_received)
    client.on("UnreadCountChanged", on_count)
    client.on("NotificationRead", on_read)
    print("listening", flush=True)
    await until(lambda: any(n["title"] == title for n in received), "the notification")
    identifier = next(n["id"] for n in received if n["title"] == title)
    await client.send("MarkAsRead", [identifier], on_result)
    await until(lambda: results == [0] and read == [identifier] and counts[-1] == 0, "the read")


async def run(client):
    # The system of a killed gateway may accept one more connection and then reset it. The client
    # negotiates anew, and gives up if that is refused.
    while True:
        try:
            await client.run()
        except ClientConnectionError:
            await asyncio.sleep(1)


async def stay(client, running):
    async def on_received(arguments):
        for notification in arguments:
            print("received", notification["title"], flush=True)

    async def on_count(arguments):
        print("unread", *arguments, flush=True)

    client.on("ReceiveNotification", on_received)
    client.on("UnreadCountChanged", on_count)
    print("listening", flush=True)
    # Ends with an error if the client gives up.
    await running


async def main():
    mode, url = sys.argv[1:3]
    path = "/hub" if mode == "conformance" else "/hubs/notifications"
    token = "anyone" if mode == "conformance" else sys.argv[3]
    # The client calls access_token_factory only after the negotiation, which is too late.
    headers = {"Authorization": f"Bearer {token}"}
    client = SignalRClient(url + path, headers=headers, connection_timeout=PATIENCE)
    opened = asyncio.Event()

    async def on_open():
        opened.set()
        # The client reads the headers again for each connection.
        if mode == "stay" and len(sys.argv) > 4:
            headers["Authorization"] = f"Bearer {sys.argv[4]}"
        print("open", flush=True)

    client.on_open(on_open)
    tasks = [asyncio.create_task(run(client)), asyncio.create_task(opened.wait())]
    await asyncio.wait(tasks, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    if not opened.is_set():
        raise SystemExit("Error: the hub did not open")
    if mode == "stay":
        await stay(client, tasks[0])
    await (conformance(client) if mode == "conformance" else gateway(client, sys.argv[4]))
    print("ok", flush=True)
    # The client cannot be stopped.
    os._exit(0)


asyncio.run(main())
