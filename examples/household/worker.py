# Carillon · worker.py
# SPDX-License-Identifier: Apache-2.0
"""The rest of the app's worker and its `NotificationService`: they choose messages and recipients.

Carillon handles tokens, buttons, the limit of five, the summary, time zones and quiet hours.
"""

import json
import uuid

#: Makes schedule ids stable, so that setting a schedule again changes nothing.
NAMESPACE = uuid.UUID("6f8f1d4e-5d0f-4c1c-9f6e-5a5f5a3d7c10")


def task_job(user_id, type, title, task, *, id=None):
    """`CreateAndSendTaskNotification`: the state selects the buttons, the type the limit."""
    job = {
        "user": str(user_id), "type": type, "title": title, "body": task["name"], "state": task["state"],
        "entity_type": "task", "entity_id": str(task["id"]), "data": json.dumps({"task_id": str(task["id"])}),
        "collapse_key": f"task:{task['id']}",
    }
    if type in ("task_due_soon", "task_overdue"):
        job["digest"] = type
    if id:
        job["id"] = id
    return job


def handle_overdue_reminder(redis, tasks_by_user, day):
    """`HandleOverdueReminder`: sends a run in one round trip. A second run sends no duplicates."""
    jobs = [
        task_job(user, "task_overdue", "Overdue", task, id=f"overdue:{task['id']}:{day}")
        for user, tasks in tasks_by_user.items() for task in tasks
    ]
    return redis.xadd_many("carillon:jobs", jobs)


def schedule_digest(api, user_id, statistics):
    """Replaces Asynq's entry for DAILY_DIGEST_HOUR: eleven o'clock in the user's time zone."""
    return api("POST", "/v1/schedules", {
        "id": str(uuid.uuid5(NAMESPACE, f"digest:{user_id}")), "cron": "0 11 * * *", "zone": "recipient",
        "job": {"user": str(user_id), "type": "task_digest", "title": "Your day", "body": statistics},
    })
