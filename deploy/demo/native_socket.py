# Carillon · native_socket.py
# SPDX-License-Identifier: Apache-2.0
"""A small WebSocket client (RFC 6455) for the native dialect. Needs only the standard library."""

import base64
import json
import os
import socket
import struct
import time
from urllib.parse import urlsplit

TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA


class NativeSocket:
    """A user's open socket, which answers pings while it waits for messages.

    `path` selects another dialect; the caller then reads and writes its text messages. Without a
    token, the handshake has no `Authorization` header.
    """

    def __init__(self, gateway, token, patience, path="/v1/socket"):
        place = urlsplit(gateway)
        identity = f"Authorization: Bearer {token}\r\n" if token else ""
        self.connection = socket.create_connection((place.hostname, place.port), timeout=patience)
        self.bytes = b""
        key = base64.b64encode(os.urandom(16)).decode()
        self.connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{identity}\r\n".encode())
        while b"\r\n\r\n" not in self.bytes:
            self._receive()
        head, self.bytes = self.bytes.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.splitlines()[0]:
            raise ConnectionError(f"no socket: {head.splitlines()[0].decode()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def texts(self):
        """Yields the text messages as they arrive."""
        while True:
            opcode, payload = self._frame()
            if opcode == TEXT:
                yield payload.decode()

    def send(self, text):
        """Sends a text message."""
        self._send(TEXT, text.encode())

    def wait_for(self, kind, accepts=lambda message: True):
        """Returns the next message of a type and its arrival time in milliseconds since 1970."""
        while True:
            opcode, payload = self._frame()
            arrived = time.time() * 1000
            if opcode == TEXT:
                message = json.loads(payload)
                if message["type"] == kind and accepts(message):
                    return message, arrived

    def wait_for_ping(self):
        """Answers the next ping and returns the time in milliseconds since 1970."""
        while self._frame()[0] != PING:
            pass
        return time.time() * 1000

    def _frame(self):
        first, second = self._take(2)
        length = second & 0x7F
        if length == 126:
            length, = struct.unpack("!H", self._take(2))
        elif length == 127:
            length, = struct.unpack("!Q", self._take(8))
        payload = self._take(length)
        opcode = first & 0x0F
        if opcode == PING:
            self._send(PONG, payload)
        elif opcode == CLOSE:
            raise ConnectionError(f"the gateway closed the socket: {payload[:2].hex()} {payload[2:].decode()}")
        return opcode, payload

    def _send(self, opcode, payload):
        # Clients mask their frames. The gateway takes at most 64 KB, so two bytes hold the length.
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack("!H", len(payload))
        self.connection.sendall(bytes([0x80 | opcode]) + length + mask + masked)

    def _take(self, count):
        while len(self.bytes) < count:
            self._receive()
        taken, self.bytes = self.bytes[:count], self.bytes[count:]
        return taken

    def _receive(self):
        chunk = self.connection.recv(65536)
        if not chunk:
            raise ConnectionError("the gateway closed the connection")
        self.bytes += chunk
