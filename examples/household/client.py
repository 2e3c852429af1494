# Carillon · client.py
# SPDX-License-Identifier: Apache-2.0
"""The app's calls, with its own authorization scheme: `Authorization: Token …`."""


class PushAPI:
    def __init__(self, stack, user):
        self.stack = stack
        self.token = stack.token(user)

    def register_apns(self, registration_id, device_id, name):
        return self._call("POST", "/api/push/apns/", {
            "registration_id": registration_id, "device_id": device_id, "name": name, "active": True})

    def register_gcm(self, registration_id, device_id, name):
        return self._call("POST", "/api/push/gcm/", {
            "registration_id": registration_id, "device_id": device_id, "name": name, "active": True})

    def devices(self):
        return self._call("GET", "/api/push/apns/") + self._call("GET", "/api/push/gcm/")

    def test(self, title, message):
        return self._call("POST", "/api/push/test/", {"title": title, "message": message})

    def unregister_gcm(self, registration_id):
        return self._call("DELETE", f"/api/push/gcm/{registration_id}/")

    def _call(self, method, path, body=None):
        return self.stack.call(method, path, body, token=self.token, scheme="Token")
