# Carillon · test_state.py
# SPDX-License-Identifier: Apache-2.0

import unittest
from typing import Any

from carillon.state import InboxState


def notification(number: int, version: int | None = None, read: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{number:03}",
        "type": "t",
        "severity": "info",
        "delivery": "in_app",
        "title": str(number),
        "body": "",
        "data": {},
        "version": version or number,
        "created_at": "2026-11-26T10:52:49.899Z",
        "read_at": "2026-11-26T11:00:00.000Z" if read else None,
        "colour": "unknown to this version",
        **more,
    }


def sync(version: int, *notifications: dict[str, Any], unread: int = 0, **more: Any) -> dict[str, Any]:
    members = {"notifications": list(notifications), "deleted": [], "reset": False, **more}
    return {"type": "sync", "version": version, "unread": unread, **members}


def arrival(number: int, unread: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "type": "notification",
        "version": number,
        "unread": unread,
        "notification": notification(number, **more),
    }


def change(kind: str, version: int, unread: int, **change: Any) -> dict[str, Any]:
    change["at"] = "2026-11-26T12:00:00.000Z"
    return {"type": kind, "version": version, "unread": unread, "change": change}


class StateTests(unittest.TestCase):
    def state(self, *frames: dict[str, Any], version: int | None = None, most_items: int = 100) -> InboxState:
        """Returns the state after some frames."""
        state = InboxState(version, most_items)
        for frame in frames:
            state.apply(frame)
        return state

    def titles(self, state: InboxState) -> list[str]:
        """Returns the titles of the items, with a mark after those that are read."""
        return [item.title + ("r" if item.read_at else "") for item in state.items]

    def test_the_first_sync_is_the_inbox_and_no_arrival(self) -> None:
        state = InboxState(None, 100)
        self.assertEqual(state.apply(sync(7, notification(2), notification(1), unread=2)), [])
        self.assertEqual((self.titles(state), state.version, state.unread), (["2", "1"], 7, 2))

    def test_a_notification_arrives_once(self) -> None:
        state = self.state(sync(0))
        self.assertEqual([item.title for item in state.apply(arrival(1, silent=True))], ["1"])
        self.assertEqual(state.apply(arrival(1)), [])
        self.assertEqual((self.titles(state), state.version, state.unread), (["1"], 1, 1))

    def test_a_sync_after_a_gap_brings_arrivals_and_changes(self) -> None:
        state = self.state(sync(2, notification(1), notification(2)))
        frame = sync(
            9,
            notification(5),
            notification(4),
            notification(2, 6, read=True),
            notification(3, 7, read=True),
            deleted=["001"],
            unread=2,
        )
        self.assertEqual([item.title for item in state.apply(frame)], ["4", "5"])
        self.assertEqual((self.titles(state), state.version), (["5", "4", "3r", "2r"], 9))
        self.assertEqual(state.apply(frame), [])

    def test_a_resumed_inbox_begins_with_what_changed(self) -> None:
        state = InboxState(2, 100)
        self.assertEqual([item.title for item in state.apply(sync(3, notification(3), unread=3))], ["3"])
        self.assertEqual((self.titles(state), state.unread), (["3"], 3))

    def test_what_the_user_brings_back_while_away_does_not_arrive(self) -> None:
        frames = [sync(2, notification(1), notification(2)), change("deleted", 3, 1, ids=["001"])]
        state = self.state(*frames, arrival(4), arrival(5), most_items=2)
        frame = sync(9, notification(1, 6), notification(2, 7), notification(3, 8), notification(6, 9))
        self.assertEqual([item.title for item in state.apply(frame)], ["3", "6"])
        state.apply(change("deleted", 10, 1, ids=["006"]))
        self.assertEqual(state.apply(sync(11, notification(6, 11))), [])
        self.assertEqual(self.titles(state), ["6", "5"])

    def test_an_older_id_that_is_stored_later_arrives(self) -> None:
        state = self.state(sync(2, notification(9, 2)))
        self.assertEqual([item.title for item in state.apply(sync(3, notification(8, 3)))], ["8"])

    def test_a_reset_replaces_the_items_and_old_ones_do_not_arrive(self) -> None:
        state = self.state(sync(4, notification(4), notification(3)))
        frame = sync(900, notification(9), notification(4), notification(2), reset=True)
        self.assertEqual([item.title for item in state.apply(frame)], ["9"])
        self.assertEqual(self.titles(state), ["9", "4", "2"])

    def test_a_reset_to_a_new_inbox_counts_from_its_start(self) -> None:
        state = self.state(sync(500, notification(9)))
        frame = sync(3, notification(2), notification(1), reset=True)
        self.assertEqual([item.title for item in state.apply(frame)], ["1", "2"])
        self.assertEqual((self.titles(state), state.version), (["2", "1"], 3))

    def test_reads_and_deletions_by_id(self) -> None:
        state = self.state(sync(3, notification(1), notification(2), notification(3)))
        state.apply(change("read", 4, 2, ids=["002", "999"]))
        self.assertEqual((self.titles(state), state.unread), (["3", "2r", "1"], 2))
        state.apply(change("deleted", 5, 1, ids=["003", "999"]))
        self.assertEqual((self.titles(state), state.version), (["2r", "1"], 5))
        self.assertTrue(state.are_read(["002", "999"]))
        self.assertFalse(state.are_read(["001", "002"]))

    def test_reads_and_deletions_up_to_a_version(self) -> None:
        state = self.state(sync(3, notification(1), notification(2), notification(3)))
        state.apply(change("read", 600, 1, all=True, up_to_version=2))
        self.assertEqual(self.titles(state), ["3", "2r", "1r"])
        state.apply(change("deleted", 1200, 1, all_read=True, up_to_version=3))
        self.assertEqual(self.titles(state), ["3"])

    def test_the_time_of_the_first_read_stays(self) -> None:
        state = self.state(sync(1, notification(1, read=True)))
        state.apply(change("read", 2, 0, ids=["001"]))
        self.assertEqual([item.read_at.hour for item in state.items if item.read_at], [11])

    def test_items_are_bounded(self) -> None:
        state = self.state(sync(0), *(arrival(number) for number in range(1, 6)), most_items=3)
        self.assertEqual(self.titles(state), ["5", "4", "3"])


if __name__ == "__main__":
    unittest.main()
