# Carillon · smtp_sink.py
# SPDX-License-Identifier: Apache-2.0
"""A mail server (aiosmtpd) that prints each e-mail as Python's email package parses it.

    smtp_sink.py CERTIFICATE KEY

Requires STARTTLS and the login ada with the password p@ss/word. Prints "ready PORT", then for each
e-mail "mail JSON" with the envelope's addresses, the header fields, the texts by type and the
defects.
"""

import asyncio
import json
import ssl
import sys
from email import message_from_bytes, policy

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword


class Sink:
    async def handle_DATA(self, server, session, envelope):
        mail = message_from_bytes(envelope.content, policy=policy.default)
        parts = [part for part in mail.walk() if not part.is_multipart()]
        found = {
            "sender": envelope.mail_from,
            "recipients": envelope.rcpt_tos,
            "tls": session.ssl is not None,
            "fields": {name.lower(): str(value) for name, value in mail.items()},
            "from": [[address.display_name, address.addr_spec] for address in mail["from"].addresses],
            "date": mail["date"].datetime.isoformat(),
            "texts": {part.get_content_type(): part.get_content() for part in parts},
            "best": mail.get_body().get_content_type(),
            "defects": [str(defect) for part in mail.walk() for defect in part.defects]
            + [str(defect) for value in mail.values() for defect in value.defects],
        }
        print("mail", json.dumps(found), flush=True)
        return "250 2.0.0 Ok: queued as SINK1"


def log_in(server, session, envelope, mechanism, data):
    wanted = LoginPassword(b"ada", b"p@ss/word")
    return AuthResult(success=mechanism in ("PLAIN", "LOGIN") and data == wanted)


async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])

    def session():
        return SMTP(Sink(), tls_context=context, require_starttls=True, auth_required=True, authenticator=log_in)

    server = await asyncio.get_running_loop().create_server(session, "127.0.0.1", 0)
    print("ready", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
