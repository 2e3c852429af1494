# Carillon · jobs.py
# SPDX-License-Identifier: Apache-2.0
"""Jobs: requests to notify someone (docs/jobs.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, get_args

from carillon.errors import Fault, InvalidJob

Channel = Literal["in_app", "push", "email"]
Delivery = Literal["push", "in_app"]
Lane = Literal["critical", "normal", "bulk"]
PushPriority = Literal["high", "normal"]
Severity = Literal["alert", "warning", "info"]

_MOST_USERS = 1_000
_AUDIENCES = ("user", "users", "topic", "all")
# Fields to omit if they are false or empty. Carillon checks the others even if they are empty.
_MAY_BE_EMPTY = (*_AUDIENCES, "except_", "type", "event", "id", "lane")
# An escape, not an escaped backslash before "u0000".
_NUL = re.compile(rb"(?<!\\)(\\\\)*\\u0000")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request to notify someone. docs/jobs.md explains every field.

    Give exactly one of `user`, `users`, `topic` and `all`, and either `type` or `event`. A job with
    a `type` needs an `id` derived from the event that it reports, such as `payment:9317`. You can
    then send it again after a timeout or a crash, and each user is notified once. `except_` is the
    field `except`. A `datetime` needs a time zone.

    Raises:
        InvalidJob: the audience, `type` or `event`, `id` or `lane` breaks a rule, or Carillon
            cannot store a value; lists every fault. The gateway and the dispatcher check all other
            rules.
    """

    user: str | None = None
    users: Sequence[str] | None = None
    topic: str | None = None
    all: bool = False
    except_: Sequence[str] | None = None

    type: str | None = None
    id: str | None = None
    org: str | None = None
    traceparent: str | None = None

    title: str | None = None
    body: str | None = None
    template: str | None = None
    vars: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    category: str | None = None
    sound: str | None = None
    state: str | None = None
    url: str | None = None
    image: str | None = None
    badge: int | None = None
    platform: Mapping[str, Any] | None = None

    severity: Severity | None = None
    delivery: Delivery | None = None
    lane: Lane | None = None
    push_priority: PushPriority | None = None
    channels: Sequence[Channel] | None = None
    collapse_key: str | None = None
    digest: str | None = None

    expires_at: datetime | str | None = None
    keep_until: datetime | str | None = None
    deliver_at: datetime | str | None = None
    deliver_local: str | None = None

    event: str | None = None
    args: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise InvalidJob(faults)

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON object for `POST /v1/jobs`, without empty fields."""
        members: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or (not value and field.name in _MAY_BE_EMPTY):
                continue
            if isinstance(value, datetime):
                value = value.isoformat()
            elif isinstance(value, Mapping):
                value = dict(value)
            members[field.name.rstrip("_")] = value
        return members

    def to_fields(self) -> dict[str, str]:
        """Returns the fields of a stream entry: strings as they are, other values as JSON."""
        return {
            name: value if isinstance(value, str) else encode(value).decode() for name, value in self.to_json().items()
        }

    def _faults(self) -> Iterator[Fault]:
        if len([name for name in _AUDIENCES if getattr(self, name)]) != 1:
            yield Fault("user", f"give exactly one of {', '.join(_AUDIENCES)}")
        users: Any = self.users
        if _is_list(users) and len(users) > _MOST_USERS:
            yield Fault("users", f"must be at most {_MOST_USERS} users; send to a topic, or several jobs")
        if self.lane and self.lane not in get_args(Lane):
            yield Fault("lane", f"must be one of {', '.join(get_args(Lane))}")
        if not (self.type or self.event):
            yield Fault("type", "is missing")
        if self.type and self.event:
            yield Fault("type", "cannot be combined with event")
        if not (self.id or self.event):
            yield Fault("id", "is missing; derive it from the event that the job reports: payment:9317")
        for field in fields(self):
            if reason := _value_fault(getattr(self, field.name)):
                yield Fault(field.name.rstrip("_"), reason)


def encode(value: Any) -> bytes:
    """Returns compact JSON. Any mapping becomes an object, and any sequence an array."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if _is_list(value):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _value_fault(value: Any) -> str | None:
    """Returns the reason why Carillon would refuse a value in any field, or None."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return "has no time zone; use datetime.now(timezone.utc) or the like" if value.tzinfo is None else None
    is_text = isinstance(value, str)
    try:
        text = value.encode() if is_text else encode(value)
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    except (TypeError, ValueError) as error:
        return f"is not JSON: {error}"
    holds_zero = b"\0" in text if is_text else _NUL.search(text)
    return "holds the character U+0000" if holds_zero else None
