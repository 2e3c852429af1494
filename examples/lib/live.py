# Carillon · live.py
# SPDX-License-Identifier: Apache-2.0
"""Minimal versions of `socket.io-client` and `@microsoft/signalr`, with what the examples use.

The names are those of the originals, so code written for them reads the same.
"""

import json
import socket
import threading
from urllib.parse import urlencode

from stack import http  # also puts native_socket on the path
from native_socket import NativeSocket


class _Live:
    """Reads a socket in the background and calls handlers by event."""

    def __init__(self, gateway, path):
        self._socket = NativeSocket(gateway, None, 60.0, path)
        self._handlers = {}
        self._sending = threading.Lock()

    def on(self, event, handler):
        self._handlers.setdefault(event, []).append(handler)

    def _begin(self):
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for text in self._socket.texts():
                self._take(text)
        except OSError:
            pass

    def _say(self, text):
        with self._sending:
            self._socket.send(text)

    def _fire(self, event, *arguments):
        for handler in self._handlers.get(event, []):
            handler(*arguments)

    def close(self):
        self._socket.connection.shutdown(socket.SHUT_RDWR)
        self._socket.connection.close()


class SocketIO(_Live):
    """`io(url, {auth, …})`: Engine.IO 4 over a WebSocket, default namespace."""

    def __init__(self, gateway, auth):
        super().__init__(gateway, "/socket.io/?EIO=4&transport=websocket")
        self._auth = auth
        self._answers = {}

    def connect(self):
        self._begin()

    def emit(self, event, argument, answer=None):
        number = ""
        if answer:
            number = len(self._answers)
            self._answers[number] = answer
        self._say(f"42{number}{json.dumps([event, argument])}")

    def _take(self, text):
        if text.startswith("0"):
            self._say("40" + json.dumps(self._auth))
        elif text == "2":
            self._say("3")
        elif text.startswith("40"):
            self._fire("connect")
        elif text.startswith("44"):
            self._fire("connect_error", json.loads(text[2:]))
        elif text.startswith("42"):
            event, *arguments = json.loads(text[2:])
            self._fire(event, *arguments)
        elif text.startswith("43"):
            number, _, rest = text[2:].partition("[")
            self._answers.pop(int(number))(*json.loads("[" + rest))


class HubConnection(_Live):
    """`new HubConnectionBuilder().withUrl(…).build()`: the JSON hub protocol over a WebSocket."""

    MARK = "\x1e"

    def __init__(self, gateway, hub, access_token_factory):
        token = access_token_factory()
        status, offer = http(
            "POST", f"{gateway}{hub}/negotiate?negotiateVersion=1", headers={"Authorization": f"Bearer {token}"})
        if status != 200:
            raise ConnectionError(f"{hub}: negotiation failed: {status} {offer}")
        query = urlencode({"id": offer["connectionToken"], "access_token": token})
        super().__init__(gateway, f"{hub}?{query}")
        self._results = {}
        self._is_open = threading.Event()

    def start(self):
        self._begin()
        self._say(json.dumps({"protocol": "json", "version": 1}) + self.MARK)
        if not self._is_open.wait(10):
            raise TimeoutError("the hub did not answer the handshake")

    def invoke(self, method, *arguments):
        """Calls a method of the hub and returns its result."""
        number, box = str(len(self._results)), threading.Event()
        self._results[number] = box
        self._say(json.dumps({"type": 1, "invocationId": number, "target": method, "arguments": arguments}) + self.MARK)
        if not box.wait(10):
            raise TimeoutError(f"{method}: no answer")
        if box.error:
            raise ConnectionError(box.error)
        return box.result

    def _take(self, text):
        for part in text.split(self.MARK)[:-1]:
            message = json.loads(part)
            kind = message.get("type")
            if kind is None:
                if not message.get("error"):
                    self._is_open.set()
            elif kind == 1:
                self._fire(message["target"], *message["arguments"])
            elif kind == 3:
                box = self._results[message["invocationId"]]
                box.error, box.result = message.get("error"), message.get("result")
                box.set()
            elif kind == 6:
                self._say(json.dumps({"type": 6}) + self.MARK)
