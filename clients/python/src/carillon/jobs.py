# Carillon · jobs.py
# SPDX-License-Identifier: Apache-2.0
"""Jobs: requests to notify someone (docs/jobs.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, get_args

from carillon.errors import Fault, InvalidJob

Channel = Literal["in_app", "push", "email"]
Delivery = Literal["push", "in_app"]
Lane = Literal["critical", "normal", "bulk"]
PushPriority = Literal["high", "normal"]
Severity = Literal["alert", "warning", "info"]

# Unicode scalars.
TEXT_LIMITS: Mapping[str, int] = {
    **dict.fromkeys(["user", "topic", "type", "event", "id", "org", "template", "digest"], 128),
    **dict.fromkeys(["entity_type", "entity_id", "category", "sound", "state"], 128),
    **dict.fromkeys(["url", "image"], 2_048),
    "title": 255,
    "body": 4_096,
    "collapse_key": 64,
    "deliver_local": 128,
}
# Bytes.
JSON_LIMIT = 16_384
MOST_USERS = 1_000
MOST_BADGE = 99_999
CHOICES: Mapping[str, tuple[str, ...]] = {
    "severity": get_args(Severity),
    "delivery": get_args(Delivery),
    "lane": get_args(Lane),
    "push_priority": get_args(PushPriority),
}
_MAY_BE_EMPTY = ("title", "body")
_OBJECTS = ("vars", "data", "platform")
_MOMENTS = ("deliver_at", "expires_at", "keep_until")
_USER_LISTS = ("users", "except")
_AUDIENCES = ("user", "users", "topic", "all")
_EVENT_FIELDS = (*_AUDIENCES, "except", "event", "args", "id", "org", "traceparent")

_DATE = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]"
# RFC 3339, with a leap second and the separators that the gateway takes.
_MOMENT = re.compile(rf"{_DATE}[Tt ]{_TIME}:([0-5][0-9]|60)(\.[0-9]+)?([Zz]|[+-]{_TIME})")
_WALL_TIME = re.compile(rf"({_DATE}[Tt ])?{_TIME}")
# Schemes that run or show their own content instead of leading somewhere.
_REFUSED_LINK = re.compile("(javascript|vbscript|data|blob|file):", re.IGNORECASE | re.ASCII)
_IMAGE = re.compile("https?://[^/?#:]", re.IGNORECASE | re.ASCII)
# An escape, not an escaped backslash before "u0000".
_NUL = re.compile(rb"(?<!\\)(\\\\)*\\u0000")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A request to notify someone. docs/jobs.md explains every field.

    Give exactly one of `user`, `users`, `topic` and `all`, and either `type` or `event`. A job with
    a `type` needs an `id` that follows from the event that it reports, such as `payment:9317`: then
    you can send it again after a timeout or a crash, and each user is notified once. `except_` is
    the field `except`. A `datetime` needs a time zone.

    Raises:
        InvalidJob: with every field that breaks a rule. The gateway and the dispatcher know more
            rules, such as those of the catalog.
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
        """Returns the members of the JSON object for `POST /v1/jobs`, without those left out."""
        members: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or value is False:
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

    def _faults(self) -> list[Fault]:
        members = self.to_json()
        faults: list[Fault] = []
        audiences = [name for name in _AUDIENCES if name in members]
        if len(audiences) != 1:
            rule = f"give only one of {', '.join(audiences)}" if audiences else "give one of user, users, topic, all"
            faults.append(Fault(audiences[0] if audiences else "user", rule))
        if "event" in members and "type" in members:
            faults.append(Fault("type", "cannot be combined with event"))
        elif "event" not in members:
            if "args" in members:
                faults.append(Fault("args", "is only for events"))
            if "type" not in members:
                faults.append(Fault("type", "is missing"))
            if "id" not in members:
                faults.append(Fault("id", "is missing; derive it from the event that the job reports: payment:9317"))
        if "deliver_at" in members and "deliver_local" in members:
            faults.append(Fault("deliver_local", "excludes deliver_at"))
        for name, value in members.items():
            reason = self._fault(name, value)
            if not reason and "event" in members and name not in (*_EVENT_FIELDS, "type"):
                reason = "is not a field of an event"
            if reason:
                faults.append(Fault(name, reason))
            elif name in _USER_LISTS:
                users = ((f"{name}[{index}]", _text_fault(user, 128)) for index, user in enumerate(value))
                faults += [Fault(field, rule) for field, rule in users if rule][:1]
        return faults

    def _fault(self, name: str, value: Any) -> str | None:
        """Returns the rule that a field's value breaks."""
        if name in TEXT_LIMITS:
            return _text_fault(value, TEXT_LIMITS[name], name in _MAY_BE_EMPTY) or _form_fault(name, value)
        if name in CHOICES:
            return None if value in CHOICES[name] else f"must be one of {', '.join(CHOICES[name])}"
        if name in _MOMENTS:
            given = getattr(self, name)
            if isinstance(given, datetime) and given.tzinfo is None:
                return "has no time zone; use datetime.now(timezone.utc) or the like"
            return _text_fault(value, 128) or _form_fault(name, value)
        if name in _USER_LISTS:
            is_list = _is_list(value) and 1 <= len(value) <= MOST_USERS
            return None if is_list else f"must be a list of 1 to {MOST_USERS} strings"
        if name == "channels":
            is_known = _is_list(value) and value and all(channel in get_args(Channel) for channel in value)
            return None if is_known else "must be a list out of in_app, push, email"
        if name == "badge":
            is_number = isinstance(value, int) and value is not True and 0 <= value <= MOST_BADGE
            return None if is_number else f"must be a whole number from 0 to {MOST_BADGE}"
        if name in _OBJECTS and not isinstance(value, Mapping):
            return "must be an object"
        if name == "args" and not _is_list(value):
            return "must be a list"
        if name == "all":
            return None if value is True else "must be true"
        try:
            text = encode(value)
        except UnicodeEncodeError:
            return "holds half of a surrogate pair"
        except (TypeError, ValueError) as error:
            return f"is not JSON: {error}"
        if _NUL.search(text):
            return "holds the character U+0000"
        return f"is longer than {JSON_LIMIT} bytes" if len(text) > JSON_LIMIT else None


def encode(value: Any) -> bytes:
    """Returns compact JSON. Any mapping is an object, and any sequence an array."""
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


def _text_fault(value: Any, limit: int, may_be_empty: bool = False) -> str | None:
    if not isinstance(value, str):
        return "must be a string"
    if not value and not may_be_empty:
        return "is empty"
    if "\0" in value:
        return "holds the character U+0000"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair"
    return f"is longer than {limit} characters" if len(value) > limit else None


def _form_fault(name: str, text: str) -> str | None:
    """Returns the rule that the form of a time or an address breaks."""
    if name in _MOMENTS and not _MOMENT.fullmatch(text):
        return "must be an RFC 3339 time such as 2026-11-20T10:00:00Z"
    if name == "deliver_local" and not _WALL_TIME.fullmatch(text):
        return "must be a time of day such as 08:30, or a day with it such as 2027-01-01T08:30"
    if name == "url" and (match := _REFUSED_LINK.match(text)):
        return f"must not be a {match[0].lower()} URL; give a path, an https:// URL or a link into the app"
    if name == "image" and not _IMAGE.match(text):
        return "must be an https:// URL (or http://) that the device can fetch"
    return None
