# Carillon · backend.py
# SPDX-License-Identifier: Apache-2.0
"""The remaining `NotificationService.cs`: three ways to send. The catalog has the templates."""


class NotificationService:
    def __init__(self, stack):
        self.stack = stack
        self.token = stack.token("allowance-backend", "--scope", "service")

    def send_notification(self, user_id, type, data, entity_type=None, entity_id=None, id=None):
        """`SendNotificationAsync`; `data` fills the type's template."""
        return self._send(user=user_id, type=type, vars=data, entity_type=entity_type, entity_id=entity_id, id=id)

    def send_family_notification(self, family_id, type, data, exclude_user_id=None, entity_type=None, entity_id=None):
        """`SendFamilyNotificationAsync`."""
        except_ = [exclude_user_id] if exclude_user_id else None
        return self._send(topic=f"family-{family_id}", type=type, vars=data, entity_type=entity_type,
                          entity_id=entity_id, **{"except": except_})

    def balance_updated(self, user_id, child_id, balance):
        """`Clients.User(…).SendAsync("BalanceUpdated", …)`: for open sockets only, not stored."""
        return self._send(user=user_id, event="BalanceUpdated", args=[child_id, balance])

    def _send(self, **job):
        job = {name: value for name, value in job.items() if value is not None}
        return self.stack.call("POST", "/v1/jobs", job, token=self.token)
