# Carillon · client.py
# SPDX-License-Identifier: Apache-2.0
"""The app's client: `NotificationSocket` of `lib/notifications/socket.ts`, and its REST calls."""

from live import SocketIO


class NotificationSocket:
    def __init__(self, api_url):
        self.api_url = api_url
        self.socket = None
        self.notifications = {}
        self.is_synced = False

    def connect(self, user_id, auth_token):
        self.socket = SocketIO(self.api_url, auth={"token": auth_token})
        # Subscribe to the user's notification channel.
        self.socket.on("connect", lambda: self.socket.emit("subscribe", {"user_id": user_id}))
        self.socket.on("notification", self.handle_notification)
        self.socket.on("notification_read", self.handle_notification_read)
        self.socket.on("sync", self.handle_sync)
        self.socket.connect()

    def disconnect(self):
        self.socket.close()

    def mark_as_read(self, notification_id):
        self.socket.emit("mark_read", {"notification_id": notification_id})

    def unread_count(self, answer):
        self.socket.emit("get_unread_count", {}, answer)

    def handle_notification(self, data):
        self.notifications[data["id"]] = data

    def handle_notification_read(self, data):
        self.notifications[data["notification_id"]]["read_at"] = data["read_at"]

    def handle_sync(self, data):
        self.notifications = {item["id"]: item for item in data["notifications"]}
        self.is_synced = True

    def titled(self, title):
        """Returns the notification with that title."""
        return next((item for item in list(self.notifications.values()) if item["title"] == title), None)


def register_push(stack, token, fcm_token, platform, device_id):
    """`requestPushPermission` of `lib/notifications/webpush.ts`, after the user's consent."""
    body = {"fcm_token": fcm_token, "platform": platform, "device_id": device_id}
    return stack.call("POST", "/api/push/register", body, token=token)
