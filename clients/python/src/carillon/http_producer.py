# Carillon · http_producer.py
# SPDX-License-Identifier: Apache-2.0
"""A producer for apps that cannot reach Redis: `POST /v1/jobs` (docs/rest.md#jobs)."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from carillon.errors import Fault, InvalidJob, Refused, Unavailable
from carillon.gateway import authorization, parse_address, parse_problem
from carillon.jobs import Job, encode
from carillon.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self

# The gateway takes 1,000 jobs, 16 MB and 500,000 JSON values.
_MOST_JOBS = 500
_MOST_BYTES = 8 * 1024 * 1024
_MOST_VALUES = 400_000
_MOST_IDLE = 8
# Proxies answer 502 and 504 while a gateway restarts.
_RETRIED = (429, 502, 503, 504)
_SHORTEST_BACKOFF = 0.2


@dataclass(frozen=True)
class Accepted:
    """A job that Redis has stored. `entry` is the id of its stream entry."""

    id: str
    lane: str
    entry: str


class HTTPProducer:
    """Posts jobs to the gateway. Threads may share it.

    It retries 429, 503, a proxy's 502 and 504, and requests without an answer, with exponential
    backoff and full jitter. The jobs' ids prevent duplicates. An ephemeral event is not stored, so
    a retry may deliver it twice.

    Args:
        url: the gateway's address, such as `https://notify.example.com`.
        token: a token with the scope `service`, or a function that returns one. The producer calls
            it before each try, and its errors pass through.
        timeout: the seconds to wait for the connection, and for each read of the answer.
        tries: the most tries of a request, the first included.
        longest_wait: the longest backoff, and the longest `Retry-After` that the producer obeys, in
            seconds. If the gateway asks for a longer wait, the call fails.
        context: TLS settings, such as a certificate authority of your own.

    Raises:
        ValueError: `url` or `token` cannot be used.
    """

    def __init__(
        self,
        url: str,
        token: str | Callable[[], str],
        *,
        timeout: float = 10.0,
        tries: int = 5,
        longest_wait: float = 30.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = parse_address(url)
        if not isinstance(token, str) and not callable(token):
            raise ValueError("token: must be text, or a function that returns it")
        if tries < 1:
            raise ValueError("tries: must be at least 1")
        self._place = f"{parts.scheme}://{parts.netloc}"
        self._path = parts.path.rstrip("/") + "/v1/jobs"
        self._host, self._port = parts.hostname or "", parts.port
        self._context = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._token = token
        self._timeout = timeout
        self._tries = tries
        self._longest_wait = longest_wait
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()
        # Tests replace these.
        self._sleep: Callable[[float], None] = time.sleep
        self._random: Callable[[], float] = random.random

    def __repr__(self) -> str:
        return f"HTTPProducer({self._place!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections. The producer opens new ones if you go on to use it."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            connection.close()

    def send(self, job: Job) -> Accepted:
        """Posts a job, and returns once Redis has it.

        Raises:
            InvalidJob: the job has faults, such as a type that is not in the catalog.
            Unavailable: the last try got no answer, or 429, 502, 503 or 504.
            Refused: any other answer, such as 401 or 403.
        """
        return _accepted(self._post(encode(job.to_json())))

    def send_many(self, jobs: Iterable[Job]) -> int:
        """Posts jobs in batches of up to 500, and returns their number.

        If a job is invalid, the gateway accepts none of its batch. On an error, it has accepted the
        earlier batches, and after Unavailable perhaps some jobs of this one. Send all jobs again:
        their ids prevent duplicates.

        Raises:
            InvalidJob: jobs have faults. A field is `[1200].title` for the job at index 1,200.
            Unavailable, Refused: as in `send`.
        """
        sent = 0
        for batch in _bodies(jobs):
            self._post(b"[" + b",".join(batch) + b"]", sent)
            sent += len(batch)
        return sent

    def _post(self, body: bytes, first: int = 0) -> Any:
        """Posts a body until the gateway accepts it. `first` is the index of its first job."""
        attempt = 0
        while True:
            attempt += 1
            asked: float | None = None
            headers = self._headers()
            try:
                status, head, answer = self._exchange(body, headers)
            except ssl.SSLCertVerificationError:
                raise
            except (OSError, http.client.HTTPException) as error:
                # The idle connections may be dead too, and each would cost a try.
                self.close()
                reason = f"no answer from {self._place}: {error or type(error).__name__}"
            else:
                if status == 202:
                    return json.loads(answer)
                detail, faults = parse_problem(answer, first)
                if status == 422:
                    raise InvalidJob(faults or [Fault("job", detail)])
                if status not in _RETRIED:
                    raise Refused(status, detail)
                reason = f"{self._place} answered {status}: {detail}"
                asked = _seconds(head.get("Retry-After"))
            wait = (asked or 0.0) + self._random() * min(self._longest_wait, _SHORTEST_BACKOFF * 2 ** (attempt - 1))
            if attempt >= self._tries or (asked or 0.0) > self._longest_wait:
                raise Unavailable(reason, asked)
            self._sleep(wait)

    def _headers(self) -> dict[str, str]:
        token = self._token if isinstance(self._token, str) else self._token()
        return {
            "Authorization": authorization(token),
            "Content-Type": "application/json",
            "User-Agent": f"carillon-python/{__version__}",
        }

    def _exchange(self, body: bytes, headers: dict[str, str]) -> tuple[int, http.client.HTTPMessage, bytes]:
        if self._process != os.getpid():
            # A forked process must not use its parent's connections.
            self._idle, self._process = [], os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._request(self._connection(), body, headers)
            try:
                return self._request(connection, body, headers)
            except ConnectionError:
                # The gateway closed it while it was idle.
                continue

    def _connection(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._context)

    def _request(
        self, connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        try:
            connection.request("POST", self._path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close or len(self._idle) >= _MOST_IDLE:
            connection.close()
        else:
            self._idle.append(connection)
        return answer.status, answer.headers, content


def _bodies(jobs: Iterable[Job]) -> Iterator[list[bytes]]:
    """Yields batches of encoded jobs within the limits of a request."""
    batch: list[bytes] = []
    size = values = 0
    for job in jobs:
        body = encode(job.to_json())
        # Each value but the first follows a comma or a bracket.
        count = 1 + sum(map(body.count, (b",", b"[", b"{")))
        if batch and (len(batch) == _MOST_JOBS or size + len(body) > _MOST_BYTES or values + count > _MOST_VALUES):
            yield batch
            batch, size, values = [], 0, 0
        batch.append(body)
        size += len(body) + 1
        values += count
    if batch:
        yield batch


def _accepted(answer: Any) -> Accepted:
    return Accepted(answer["id"], answer["lane"], answer["entry"])


def _seconds(header: str | None) -> float | None:
    """Returns the wait of a `Retry-After` header: seconds, or a date (RFC 9110, section 10.2.3)."""
    if header is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", header.strip()):
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None
