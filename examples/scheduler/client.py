# Carillon · client.py
# SPDX-License-Identifier: Apache-2.0
"""The app's PostgREST calls, with the headers of its Supabase client."""

TABLE = "/rest/v1/user_push_tokens"


class SupabaseClient:
    def __init__(self, stack, user):
        self.stack = stack
        self.user = user
        self.token = stack.token(user)

    def upsert_token(self, platform, token, device_id):
        """Called on sign-in."""
        row = {"user_id": self.user, "platform": platform, "token": token, "device_id": device_id}
        return self._call("POST", f"{TABLE}?on_conflict=user_id,platform,token", row,
                          Prefer="resolution=merge-duplicates,return=representation")

    def refresh_token(self, old, new):
        """Called on token refresh."""
        return self._call("PATCH", f"{TABLE}?token=eq.{old}", {"token": new}, Prefer="return=minimal")

    def tokens(self):
        return self._call("GET", f"{TABLE}?select=platform,token&order=token.asc")

    def delete_token(self, token):
        """Called on sign-out."""
        return self._call("DELETE", f"{TABLE}?token=eq.{token}")

    def tell(self, notification_id, event):
        """Reports `delivered` or `opened`, which the app sent to its own analytics before."""
        return self._call("POST", "/rest/v1/notification_events", {"notification_id": notification_id, "event": event})

    def _call(self, method, path, body=None, **headers):
        return self.stack.call(method, path, body, token=self.token, headers={"apikey": "the-project's-own"} | headers)
