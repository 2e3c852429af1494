# Carillon · fcm_firebase_admin.py
# SPDX-License-Identifier: Apache-2.0
#
# usage: fcm_firebase_admin.py URL SERVICE-ACCOUNT AUTHORITY TOKEN…
#
# Sends a message to each token with Google's library, of which only the address of FCM is changed.
# Prints "sent TOKEN NAME" or "failed TOKEN CLASS CODE" for each token, then "done".

import os
import sys
import warnings

# The library deprecates tokens in favour of installation ids, but phones still use tokens.
warnings.simplefilter("ignore", DeprecationWarning)
url, account, authority, *tokens = sys.argv[1:]
# The trusted certificate, for requests and for httpx.
os.environ["REQUESTS_CA_BUNDLE"] = os.environ["SSL_CERT_FILE"] = authority

import firebase_admin
import requests
from firebase_admin import credentials, exceptions, messaging

messaging._MessagingService.FCM_URL = url + "/v1/projects/{0}/messages:send"
app = firebase_admin.initialize_app(credentials.Certificate(account), {"httpTimeout": 10})
# Without retries, because the test checks how the library reads the first response.
messaging._get_messaging_service(app)._client.session.mount(url, requests.adapters.HTTPAdapter(max_retries=0))

for token in tokens:
    target = {"topic": token.removeprefix("/topics/")} if token.startswith("/topics/") else {"token": token}
    message = messaging.Message(
        notification=messaging.Notification(title="Grüße 🎉", body="from firebase-admin", image="https://img.example/1.png"),
        data={"invoice": "i9"},
        android=messaging.AndroidConfig(
            priority="high", ttl=3600, collapse_key="c",
            notification=messaging.AndroidNotification(
                tag="t", click_action="OPEN", channel_id="alerts", priority="high", notification_count=3)),
        apns=messaging.APNSConfig(
            headers={"apns-priority": "10", "apns-collapse-id": "c"},
            payload=messaging.APNSPayload(
                aps=messaging.Aps(badge=3, sound="default", mutable_content=True, thread_id="t", custom_data={"x": 1}),
                own={"k": 1})),
        webpush=messaging.WebpushConfig(
            headers={"TTL": "60"}, notification=messaging.WebpushNotification(title="w", body="w"),
            fcm_options=messaging.WebpushFCMOptions(link="https://app.example/i9")),
        fcm_options=messaging.FCMOptions(analytics_label="label"),
        **target,
    )
    try:
        print("sent", token, messaging.send(message, app=app))
    except exceptions.FirebaseError as error:
        print("failed", token, type(error).__name__, error.code)
print("done")
