# Carillon · web_push.py
# SPDX-License-Identifier: Apache-2.0
#
# usage: web_push.py PRIVATE-KEY AUTH BODY
#
# Decrypts a Web Push message with http_ece, the library of pywebpush, and prints "message TEXT".
# The arguments are base64: the browser's private key (32 bytes), its secret, the request's body.

import base64
import sys

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec

number, secret, body = (base64.b64decode(text) for text in sys.argv[1:4])
key = ec.derive_private_key(int.from_bytes(number, "big"), ec.SECP256R1())
opened = http_ece.decrypt(body, private_key=key, auth_secret=secret, version="aes128gcm")
print("message", opened.decode("utf-8"))
