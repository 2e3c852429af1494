# Carillon · webhooks.py
# SPDX-License-Identifier: Apache-2.0
"""Verifies the requests that Carillon posts to webhooks (docs/events.md#receive-webhooks)."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from carillon.errors import InvalidSignature, StaleSignature
from carillon.moments import parse_moment

HEADER = "Carillon-Signature"
TOLERANCE = 300.0


class Headers(Protocol):
    """The headers of a request: a mapping, or a class of a framework, such as Flask's."""

    def items(self) -> Iterable[tuple[str, str]]: ...


@dataclass(frozen=True)
class WebhookEvent:
    """A step of a notification, such as `delivered`. docs/events.md explains the fields.

    A field that does not apply is None. An event may come twice, with the same `id`, and out of
    order: sort by `at`.
    """

    id: str
    event: str
    at: datetime
    notification: str | None = None
    job: str | None = None
    user: str | None = None
    org: str | None = None
    type: str | None = None
    category: str | None = None
    channel: str | None = None
    platform: str | None = None
    app: str | None = None
    device: str | None = None
    reason: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> WebhookEvent:
        """Returns the event of a JSON object. Ignores members that a newer server adds."""
        known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        return cls(**{**known, "at": parse_moment(value["at"])})


def verify(
    body: bytes,
    headers: str | Headers | None,
    secrets: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> list[WebhookEvent]:
    """Checks the signature of a webhook request, and returns its events.

    Args:
        body: the raw body, before anything has parsed it.
        headers: the header `Carillon-Signature`, or all headers of the request.
        secrets: the webhook's secret, or several while you replace one webhook with another.
        tolerance: the most seconds between now and the signature's time.
        now: the seconds since 1970; by default those of the clock.

    Raises:
        StaleSignature: the signature is valid, but its time is out of `tolerance`.
        InvalidSignature: anything else is wrong. Answer 400 to both.
        TypeError: `body` is not bytes.
        ValueError: a secret is missing or empty.
    """
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise TypeError("body: must be the raw bytes of the request")
    keys = [secrets] if isinstance(secrets, str) else list(secrets)
    if not keys or not all(keys):
        raise ValueError("secrets: a secret is missing or empty")
    moment, signatures = _parse(_header(headers))
    # Compare all pairs, so that the duration does not reveal which secret matches.
    fits = False
    for key in keys:
        code = hmac.new(key.encode(), moment.encode() + b"." + body, hashlib.sha256).hexdigest()
        for signature in signatures:
            fits |= hmac.compare_digest(code.encode(), signature.encode())
    if not fits:
        raise InvalidSignature(f"{HEADER}: does not fit the body and the secret")
    age = (time.time() if now is None else now) - int(moment)
    if abs(age) > tolerance:
        raise StaleSignature(f"{HEADER}: is {age:.0f} s old, over {tolerance:.0f} s; check the clock of this machine")
    try:
        return [WebhookEvent.from_json(event) for event in json.loads(bytes(body))["events"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InvalidSignature("body: is signed, and does not hold events") from None


def _header(headers: str | Headers | None) -> str:
    if headers is not None and not isinstance(headers, str):
        headers = next((value for name, value in headers.items() if name.lower() == HEADER.lower()), None)
    if not headers:
        raise InvalidSignature(f"{HEADER}: is missing")
    return headers


def _parse(header: str) -> tuple[str, list[str]]:
    """Returns the time and the signatures of `t=…,v1=…`. Ignores other versions."""
    pairs = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    signatures = [value for name, _, value in pairs if name == "v1"]
    if len(times) != 1 or not re.fullmatch(r"[0-9]{1,12}", times[0]) or not signatures:
        raise InvalidSignature(f"{HEADER}: must be t=<seconds>,v1=<hexadecimal>")
    return times[0], signatures
