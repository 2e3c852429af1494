# Carillon · redis_stream.py
# SPDX-License-Identifier: Apache-2.0
"""A minimal Redis client that appends to streams, with the `xadd` of redis-py, which apps use."""

import socket
from urllib.parse import unquote, urlsplit


class Redis:
    """A connection to Redis that appends to streams."""

    def __init__(self, connection):
        self._connection = connection
        self._replies = connection.makefile("rb")

    @classmethod
    def from_url(cls, url):
        place = urlsplit(url)
        redis = cls(socket.create_connection((place.hostname, place.port or 6379), timeout=10))
        if place.password:
            redis._command("AUTH", *([unquote(place.username)] if place.username else []), unquote(place.password))
        if database := place.path.strip("/"):
            redis._command("SELECT", database)
        return redis

    def xadd(self, name, fields):
        """Appends an entry and returns its id."""
        return self.xadd_many(name, [fields])[0]

    def xadd_many(self, name, entries):
        """Appends entries in one round trip and returns their ids."""
        commands = []
        for fields in entries:
            words = [word for pair in fields.items() for word in pair]
            commands.append(encode("XADD", name, "*", *words))
        self._connection.sendall(b"".join(commands))
        return [self._reply() for _ in entries]

    def _command(self, *words):
        self._connection.sendall(encode(*words))
        return self._reply()

    def _reply(self):
        line = self._replies.readline()
        if not line:
            raise ConnectionError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise ConnectionError(f"Redis: {rest}")
        if kind == b"$":
            return self._replies.read(int(rest) + 2)[:-2].decode()
        return rest


def encode(*words):
    """Encodes a command in the Redis protocol."""
    texts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in texts)
