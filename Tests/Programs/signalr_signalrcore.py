# Carillon · signalr_signalrcore.py
# SPDX-License-Identifier: Apache-2.0
#
# usage: signalr_signalrcore.py conformance URL TRANSPORT
#        signalr_signalrcore.py gateway URL TRANSPORT TOKEN TITLE
#        signalr_signalrcore.py stay URL TRANSPORT TOKEN FRESH
#
# TRANSPORT is websockets, skip (a WebSocket without negotiation), sse or polling.
# conformance: tests the hub of the conformance program. gateway: waits for a notification with
# TITLE and marks it read. Both print "ok" and exit with 0, or print an error and exit with 1.
# stay: prints "open" for each connection and "received TITLE" for each notification until it is
# killed. When the server closes the connection, it connects again with the token FRESH.

import os
import sys
import threading
import time

from signalrcore.hub_connection_builder import HubConnectionBuilder
from signalrcore.types import HttpTransportType

# The longest wait in seconds; long, so that only a failure ends it on a busy machine.
PATIENCE = 200


def until(condition, what):
    for _ in range(PATIENCE * 20):
        if condition():
            return
        time.sleep(0.05)
    print(f"timed out: {what}", flush=True)
    os._exit(1)


def connect(url, transport, token, handlers, on_close=None):
    options = {"verify_ssl": False}
    if token:
        options["access_token_factory"] = lambda: token
    if transport == "skip":
        options["skip_negotiation"] = True
    if transport == "sse":
        options["transport"] = HttpTransportType.server_sent_events
    if transport == "polling":
        options["transport"] = HttpTransportType.long_polling
    hub = HubConnectionBuilder().with_url(url, options=options).build()
    opened = threading.Event()
    hub.on_open(opened.set)
    if on_close:
        hub.on_close(on_close)
    for name, handler in handlers.items():
        hub.on(name, handler)
    hub.start()
    if not opened.wait(PATIENCE):
        print("the hub did not open", flush=True)
        os._exit(1)
    return hub


def conformance(url, transport):
    received, results, errors = [], [], []
    # The client's polls carry no token.
    token = None if transport == "polling" else "anyone"
    hub = connect(url + "/hub", transport, token, {"Receive": received.append})
    hub.on_error(lambda message: errors.append(message.error))
    hub.send("Add", [40, 2], lambda message: results.append(message.result))
    until(lambda: results == [42], "the sum")
    # The client reads only one message from each poll's response.
    if transport != "polling":
        hub.send("Echo", ["päckchen"], lambda message: results.append(message.result))
        until(lambda: results[1:] == ["päckchen"], "the echo")
        until(lambda: received == [["päckchen"]], "Receive")
    hub.send("Nonsense", [], lambda message: errors.append(message.error))
    until(lambda: errors and "Nonsense" in str(errors[0]), "an error that names the method")
    hub.stop()


def gateway(url, transport, token, title):
    received, counts, read, results = [], [], [], []
    hub = connect(
        url + "/hubs/notifications",
        transport,
        token,
        {
            "ReceiveNotification": received.extend,
            "UnreadCountChanged": counts.extend,
            "NotificationRead": read.extend,
        },
    )
    print("listening", flush=True)
    until(lambda: any(n["title"] == title for n in received), "the notification")
    identifier = next(n["id"] for n in received if n["title"] == title)
    hub.send("MarkAsRead", [identifier], lambda message: results.append(message.result))
    until(lambda: results == [0] and read == [identifier] and counts[-1] == 0, "the read")
    # Not stopped: that takes ten seconds, and the process ends anyway.


def stay(url, transport, *tokens):
    def show(arguments):
        for notification in arguments:
            print("received", notification["title"], flush=True)

    handlers = {"ReceiveNotification": show}
    for token in tokens:
        closed = threading.Event()
        hub = connect(url + "/hubs/notifications", transport, token, handlers, closed.set)
        print("open", flush=True)
        closed.wait()
        hub.stop()
    print("closed again", flush=True)


if sys.argv[1] == "conformance":
    conformance(*sys.argv[2:4])
elif sys.argv[1] == "stay":
    stay(*sys.argv[2:6])
else:
    gateway(*sys.argv[2:6])
print("ok", flush=True)
os._exit(0)
