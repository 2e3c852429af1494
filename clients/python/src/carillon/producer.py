# Carillon · producer.py
# SPDX-License-Identifier: Apache-2.0
"""Producers that append jobs to Redis streams (docs/producers/README.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from carillon.errors import LaneFull
from carillon.jobs import Job

BATCH = 500
# The same limit as that of `POST /v1/jobs` for a lane. Redis refuses only when its memory is full.
MOST_WAITING = 1_000_000
_STREAMS = {"critical": ":jobs:critical", "normal": ":jobs", "bulk": ":jobs:bulk"}


class RedisClient(Protocol):
    """A client of redis-py: `Redis`, `RedisCluster` or their asyncio versions."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...

    def pipeline(self, *, transaction: bool) -> Any: ...


class _RedisProducer:
    """The code that both producers share. `Producer` explains the arguments."""

    def __init__(self, redis: RedisClient, *, spread: bool = False, most_waiting: int = MOST_WAITING) -> None:
        self._redis = redis
        self._most_waiting = most_waiting
        # The tags of the parts; None until they are read, empty without `spread`.
        self._tags: list[str] | None = None if spread else []
        # The streams that were full at their last check.
        self._full: set[str] = set()

    def stream(self, job: Job) -> str:
        """Returns the stream for a job: that of its `lane`, or `carillon:jobs`."""
        # A job for several users may go to any part.
        start = part_of(str(job.user or job.id or ""), self._tags or [])
        return start + _STREAMS[job.lane or "normal"]

    def _command(self, job: Job) -> list[str]:
        pairs = job.to_fields().items()
        return ["XADD", self.stream(job), "*", *(text for pair in pairs for text in pair)]

    def _fill(self, pipeline: Any, jobs: list[Job]) -> list[str]:
        """Adds the XADDs of a batch, then an XLEN for each of its streams. Returns the streams."""
        for job in jobs:
            pipeline.execute_command(*self._command(job))
        streams = sorted({self.stream(job) for job in jobs})
        for stream in streams:
            pipeline.execute_command("XLEN", stream)
        return streams

    def _full_streams(self, jobs: list[Job]) -> list[str]:
        """Returns the streams of a batch that were full at their last check."""
        return sorted(self._full & {self.stream(job) for job in jobs}) if self._full else []

    def _note(self, stream: str, length: int) -> bool:
        """Remembers whether a stream is full, and returns that."""
        parts = len(self._tags or []) or 1
        is_full = length >= self._most_waiting // parts
        if is_full:
            self._full.add(stream)
        else:
            self._full.discard(stream)
        return is_full


class Producer(_RedisProducer):
    """Appends jobs to Redis.

    You own the Redis client: give it a timeout, and close it. Its errors pass through. After an
    error, send the same jobs again: their ids prevent duplicates, except of ephemeral events.

    A job goes to the stream of its `lane`; without one, to `carillon:jobs`. The lane of its type
    applies only if it is more urgent, so set `lane="bulk"` for jobs that can wait.

    Args:
        redis: a `redis.Redis` or `redis.RedisCluster`.
        spread: appends to the streams of the user's part, which spreads the load over all masters
            of a cluster. The producer reads the tags of the parts before its first job.
        most_waiting: how many jobs may wait in a lane before `send_many` stops.
    """

    def send(self, job: Job) -> str:
        """Appends a job, and returns the id of its entry."""
        self._read_tags()
        return _text(self._redis.execute_command(*self._command(job)))

    def send_many(self, jobs: Iterable[Job]) -> int:
        """Appends jobs in batches of 500, each in one round trip, and returns their number.

        Raises:
            LaneFull: a lane of the next batch was full after an earlier batch, of this call or
                another, and still is.
        """
        self._read_tags()
        sent = 0
        for batch in batches(jobs):
            for stream in self._full_streams(batch):
                length = self._redis.execute_command("XLEN", stream)
                if self._note(stream, length):
                    raise LaneFull(stream, length, sent)
            pipeline = self._redis.pipeline(transaction=False)
            streams = self._fill(pipeline, batch)
            answers = pipeline.execute()
            sent += len(batch)
            for stream, length in zip(streams, answers[len(batch) :]):
                self._note(stream, length)
        return sent

    def _read_tags(self) -> None:
        if self._tags is None:
            self._tags = _text(self._redis.execute_command("GET", "carillon:tags") or "").split()


class AsyncProducer(_RedisProducer):
    """Appends jobs to Redis with asyncio, otherwise like `Producer`.

    Args:
        redis: a `redis.asyncio.Redis` or `redis.asyncio.RedisCluster`.
        spread: as in `Producer`.
        most_waiting: as in `Producer`.
    """

    async def send(self, job: Job) -> str:
        """Appends a job, and returns the id of its entry."""
        await self._read_tags()
        return _text(await self._redis.execute_command(*self._command(job)))

    async def send_many(self, jobs: Iterable[Job]) -> int:
        """Appends jobs in batches of 500, each in one round trip, and returns their number.

        Raises:
            LaneFull: a lane of the next batch was full after an earlier batch, of this call or
                another, and still is.
        """
        await self._read_tags()
        sent = 0
        for batch in batches(jobs):
            for stream in self._full_streams(batch):
                length = await self._redis.execute_command("XLEN", stream)
                if self._note(stream, length):
                    raise LaneFull(stream, length, sent)
            pipeline = self._redis.pipeline(transaction=False)
            streams = self._fill(pipeline, batch)
            answers = await pipeline.execute()
            sent += len(batch)
            for stream, length in zip(streams, answers[len(batch) :]):
                self._note(stream, length)
        return sent

    async def _read_tags(self) -> None:
        if self._tags is None:
            self._tags = _text(await self._redis.execute_command("GET", "carillon:tags") or "").split()


def part_of(user: str, tags: Sequence[str]) -> str:
    """Returns the prefix of a user's streams, such as `carillon:{agbr}`.

    `tags` are the words in the key `carillon:tags`, in their order; none for one Redis.
    """
    if not tags:
        return "carillon"
    value = 2_166_136_261
    for byte in user.encode():
        value = (value ^ byte) * 16_777_619 % 2**32
    return f"carillon:{{{tags[value % len(tags)]}}}"


def batches(jobs: Iterable[Job], size: int = BATCH) -> Iterator[list[Job]]:
    """Yields lists of up to `size` jobs."""
    rest = iter(jobs)
    while batch := list(islice(rest, size)):
        yield batch


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
