# Carillon · worker.py
# SPDX-License-Identifier: Apache-2.0
"""The app's remaining worker and `NotificationService`: choose messages and recipients.

Carillon handles tokens, buttons, the limit of five, the summary, time zones and quiet hours.
"""

import json


def task_job(user_id, type, title, task, *, id=None):
    """`CreateAndSendTaskNotification`: `state` selects the buttons; `type` selects the limit."""
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


def send_digest(redis, user_id, statistics, day):
    """`HandleDailyDigest`: one job a day, held until eleven o'clock in the user's time zone."""
    return redis.xadd("carillon:jobs", {
        "id": f"digest:{user_id}:{day}", "user": str(user_id), "type": "task_digest", "title": "Your day",
        "body": statistics, "deliver_local": "11:00",
    })
