# Carillon · apns_aioapns.py
# SPDX-License-Identifier: Apache-2.0
#
# usage: apns_aioapns.py PORT AUTHORITY KEY-FILE KEY-ID TEAM-ID TOPIC TOKEN…
#
# Sends an alert to each token with the library aioapns, of which only the server's address and the
# trusted certificate are changed. Prints "sent TOKEN STATUS ID" or "failed TOKEN STATUS REASON
# TIMESTAMP" for each token, then "done".

import asyncio
import ssl
import sys
import uuid

from aioapns import APNs, NotificationRequest, PushType, connection

port, authority, key, key_id, team_id, topic, *tokens = sys.argv[1:]
connection.APNsProductionClientProtocol.APNS_SERVER = "127.0.0.1"
connection.APNsTLSClientProtocol.APNS_PORT = int(port)
context = ssl.create_default_context(cafile=authority)
context.set_alpn_protocols(["h2"])


async def note(request, response):
    """Replaces the library's log line."""


async def main():
    with open(key) as file:
        client = APNs(
            key=file.read(), key_id=key_id, team_id=team_id, topic=topic, max_connections=1, ssl_context=context, err_func=note)
    for token in tokens:
        request = NotificationRequest(
            device_token=token,
            message={"aps": {"alert": {"title": "Grüße 🎉", "body": "from aioapns"}, "badge": 3, "sound": "default"}},
            notification_id=str(uuid.uuid4()),
            time_to_live=60,
            priority=10,
            collapse_key="c",
            push_type=PushType.ALERT,
        )
        response = await client.send_notification(request)
        if response.is_successful:
            same = "same" if response.notification_id == request.notification_id else "other"
            print("sent", token, response.status, same)
        else:
            print("failed", token, response.status, response.description, getattr(response, "timestamp", None))
    print("done")


asyncio.run(main())
