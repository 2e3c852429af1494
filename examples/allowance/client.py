# Carillon · client.py
# SPDX-License-Identifier: Apache-2.0
"""The app's web client: the hook `useNotifications.ts`, line by line."""

from live import HubConnection


class UseNotifications:
    def __init__(self, stack, token):
        self.stack = stack
        self.token = token
        self.notifications = []
        self.unread_count = 0
        self.balances = {}
        self.connection = HubConnection(stack.gateway, "/hubs/notifications", access_token_factory=lambda: token)
        self.connection.on("ReceiveNotification", self._receive)
        self.connection.on("UnreadCountChanged", self._count)
        self.connection.on("NotificationRead", self._read)
        self.connection.on("BalanceUpdated", self._balance)
        self.connection.start()

    def _receive(self, notification):
        self.notifications.insert(0, notification)

    def _count(self, count):
        self.unread_count = count

    def _read(self, notification_id):
        for notification in self.notifications:
            if notification["id"] == notification_id:
                notification["isRead"] = True

    def _balance(self, child_id, new_balance):
        self.balances[child_id] = new_balance

    def load_notifications(self, page=1):
        return self.stack.call("GET", f"/api/v1/notifications?page={page}&pageSize=20", token=self.token)

    def mark_as_read(self, notification_id):
        return self.stack.call("PATCH", f"/api/v1/notifications/{notification_id}/read", token=self.token)

    def stop(self):
        self.connection.close()

    def titled(self, title, about=None):
        """Returns the notification with that title, and of that entity if one is given."""
        return next((item for item in list(self.notifications)
                     if item["title"] == title and about in (None, item["relatedEntityId"])), None)


def register_device(stack, token, fcm_token, platform, name):
    """`registerDeviceToken` of `NotificationViewModel.swift`."""
    body = {"token": fcm_token, "platform": platform, "deviceName": name, "appVersion": "2.0"}
    return stack.call("POST", "/api/v1/devices", body, token=token)
