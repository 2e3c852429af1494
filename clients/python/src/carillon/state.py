# Carillon · state.py
# SPDX-License-Identifier: Apache-2.0
"""The state of a user's inbox, as the frames of a socket change it. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from carillon.moments import parse_moment

# The number of remembered ids, including those of notifications that left the list.
_MOST_SEEN = 10_000


@dataclass(frozen=True)
class Notification:
    """A notification of an inbox. docs/jobs.md explains the fields that come from its job.

    `version` is the inbox version of its last change. If `silent` is True, it arrived in the user's
    quiet hours and must not ring.
    """

    id: str
    type: str
    severity: str
    delivery: str
    title: str
    body: str
    data: Mapping[str, Any]
    version: int
    created_at: datetime
    read_at: datetime | None = None
    expires_at: datetime | None = None
    category: str | None = None
    org: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    url: str | None = None
    image: str | None = None
    collapse_key: str | None = None
    held_back: str | None = None
    silent: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Notification:
        """Returns the notification of a JSON object. Ignores members that a newer server adds."""
        known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        for name in ("created_at", "read_at", "expires_at"):
            known[name] = parse_moment(value[name]) if value.get(name) else None
        return cls(**{**known, "data": value.get("data") or {}})


@dataclass(frozen=True)
class EphemeralEvent:
    """An event that an app sent to open sockets only (docs/jobs.md#fields)."""

    name: str
    args: list[Any]


class InboxState:
    """A user's newest notifications, the unread count and the inbox version.

    Args:
        version: the version to resume from; None for the whole inbox.
        most_items: the limit of `items`. The oldest items above it leave the list, not the inbox.
    """

    def __init__(self, version: int | None, most_items: int) -> None:
        self.version = version
        self.unread = 0
        self._most_items = most_items
        self._items: dict[str, Notification] = {}
        # A `sync` does not say which notifications the user marked unread or restored. Ids cannot
        # tell: lanes, broadcasts and replays may store an older id after a newer one.
        self._seen: OrderedDict[str, None] = OrderedDict()

    @property
    def items(self) -> list[Notification]:
        """The notifications, newest first."""
        return sorted(self._items.values(), key=lambda item: item.id, reverse=True)

    def are_read(self, ids: list[str]) -> bool:
        """Returns whether all listed notifications with these ids are read."""
        return all(item.read_at for item in map(self._items.get, ids) if item)

    def apply(self, frame: Mapping[str, Any]) -> list[Notification]:
        """Applies a `sync`, `notification`, `read` or `deleted` frame.

        Returns:
            The new notifications, oldest first; none for the first `sync`.
        """
        arrivals: list[Notification] = []
        match frame["type"]:
            case "sync":
                arrivals = self._sync(frame)
            case "notification":
                notification = Notification.from_json(frame["notification"])
                # A notification that the user marked unread or restored is not new.
                is_known = notification.id in self._items or notification.id in self._seen
                if not is_known and not frame["notification"].get("again"):
                    arrivals = [notification]
                self._insert(notification)
            case "read":
                read_at = parse_moment(frame["change"]["at"])
                for item in self._meant(frame["change"]):
                    if not item.read_at:
                        self._items[item.id] = replace(item, read_at=read_at)
            case "deleted":
                for item in self._meant(frame["change"]):
                    # A change without ids deletes only read notifications.
                    if "ids" in frame["change"] or item.read_at:
                        del self._items[item.id]
        while len(self._items) > self._most_items:
            del self._items[min(self._items)]
        # After a reset, versions may start over.
        reset = frame["type"] == "sync" and frame["reset"]
        self.version = frame["version"] if reset else max(self.version or 0, frame["version"])
        self.unread = frame["unread"]
        return arrivals

    def _sync(self, frame: Mapping[str, Any]) -> list[Notification]:
        before, known = self.version, set(self._items)
        # A reset to a lower version, without any known item, means a new inbox.
        is_new = frame["reset"] and not any(value["id"] in known for value in frame["notifications"])
        if before is not None and is_new and frame["version"] < before:
            before, known = 0, set()
        if frame["reset"] or before is None:
            self._items.clear()
        for id in frame["deleted"]:
            self._items.pop(id, None)
        synced = [Notification.from_json(value) for value in frame["notifications"]]
        unseen = [item for item in synced if item.id not in known and item.id not in self._seen]
        for item in synced:
            self._insert(item)
        if before is None:
            return []
        # A reset also lists notifications from before the gap that this list never held.
        new = [item for item in unseen if not item.read_at and (item.version > before or not frame["reset"])]
        return sorted(new, key=lambda item: item.version)

    def _insert(self, item: Notification) -> None:
        self._items[item.id] = item
        self._seen[item.id] = None
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)

    def _meant(self, change: Mapping[str, Any]) -> list[Notification]:
        """Returns the listed items that a change names by id, or those up to its version."""
        if "ids" in change:
            return [self._items[id] for id in change["ids"] if id in self._items]
        return [item for item in self._items.values() if item.version <= change["up_to_version"]]
