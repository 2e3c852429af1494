# Carillon · client.py
# SPDX-License-Identifier: Apache-2.0
"""The app's client: the calls of its `NotificationService.swift`."""


class NotificationService:
    def __init__(self, stack, user):
        self.stack = stack
        self.token = stack.token(user)

    def register_token(self, fcm_token):
        body = {"fcm_token": fcm_token, "platform": "ios", "app_version": "1.0"}
        return self.stack.call("POST", "/device-token/register", body, token=self.token)

    def unregister_token(self, fcm_token):
        return self.stack.call("POST", "/device-token/unregister", {"fcm_token": fcm_token}, token=self.token)

    def status(self):
        return self.stack.call("GET", "/device-token/status", token=self.token)

    @staticmethod
    def handle_notification_tap(push):
        """Returns the id of the story that a tap opens."""
        return push["payload"]["message"]["data"].get("storyId")
