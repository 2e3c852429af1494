// Carillon · WebPushTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import Testing

@Suite("Web Push")
struct WebPushTests {
    private static let point =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    private static let secret = "BTBZMqHH6r4Tts7J_aSIgg"

    private static func json(
        endpoint: String = "https://push.example/s/1", point: String = Self.point, secret: String = Self.secret
    ) -> String {
        #"{"endpoint":"\#(endpoint)","expirationTime":null,"keys":{"p256dh":"\#(point)","auth":"\#(secret)"}}"#
    }

    @Test("parses a browser's subscription and writes it in canonical form")
    func subscription() throws {
        let subscription = try WebPushSubscription(token: Self.json())
        #expect(subscription.endpoint == "https://push.example/s/1")
        #expect(subscription.publicKey.count == 65 && subscription.secret.count == 16)
        #expect(subscription.isKeyOnCurve)
        let padded = Self.json(
            point: Self.point.replacing("-", with: "+").replacing("_", with: "/") + "=", secret: Self.secret + "==")
        #expect(try WebPushSubscription(token: padded).token == subscription.token)
        #expect(try WebPushSubscription(token: subscription.token) == subscription)
        #expect(
            subscription.token
                == #"{"endpoint":"https://push.example/s/1","keys":{"p256dh":"\#(Self.point)","auth":"\#(Self.secret)"}}"#
        )
        let off = try WebPushSubscription(token: Self.json(point: Self.point.dropLast() + "A"))
        #expect(!off.isKeyOnCurve)
    }

    @Test(
        "the origin follows RFC 6454",
        arguments: [
            ("https://Push.Example/s", "https://push.example"), ("https://push.example:443/s", "https://push.example"),
            ("https://push.example:8443/s", "https://push.example:8443"), ("https://a.b?x", "https://a.b"),
            ("HTTPS://a.b/c", "https://a.b"),
        ]
    )
    func origin(endpoint: String, origin: String) throws {
        #expect(try WebPushSubscription(token: Self.json(endpoint: endpoint)).origin == origin)
    }

    @Test("a fault names the rule and nothing of the subscription")
    func noSubscription() {
        let noPoint = "must have keys.p256dh, an uncompressed point of P-256 in base64url"
        let table = [
            ("hunter2", "must be the subscription's JSON for webpush, with endpoint and keys"),
            ("{}", "has no endpoint"),
            (Self.json(endpoint: "http://push.example"), "has an endpoint that must be an https URL"),
            (Self.json(endpoint: "https://u:hunter2@push.example"), "has an endpoint that must not hold credentials"),
            (Self.json(endpoint: "https://"), "has an endpoint that must name a host"),
            (Self.json(point: "A" + Self.point.dropFirst()), noPoint),
            (Self.json(point: "hunter2"), noPoint),
            (Self.json(secret: "hunter2"), "must have keys.auth, 16 bytes in base64url"),
            (#"{"endpoint":"https://push.example"}"#, noPoint),
        ]
        for (text, expected) in table {
            do throws(FieldFault) {
                _ = try WebPushSubscription(token: text)
                Issue.record("\(text) was taken")
            } catch {
                #expect(error.description == expected)
            }
        }
    }

    @Test(
        "checks whether a service is allowed",
        arguments: [
            ("*", "https://anything.example", true),
            ("https://fcm.googleapis.com", "https://fcm.googleapis.com", true),
            ("https://fcm.googleapis.com:443", "https://fcm.googleapis.com", true),
            ("https://fcm.googleapis.com", "https://fcm.googleapis.com.evil.example", false),
            ("https://fcm.googleapis.com", "https://fcm.googleapis.com:8443", false),
            ("https://*.push.apple.com", "https://web.push.apple.com", true),
            ("https://*.push.apple.com", "https://push.apple.com", false),
            ("https://*.push.apple.com", "https://evilpush.apple.com", false),
            ("https://a.example, https://B.example", "https://b.example", true),
            ("https://127.0.0.1:9443", "https://127.0.0.1:9443", true),
        ]
    )
    func origins(list: String, origin: String, isAllowed: Bool) throws {
        #expect(try WebPushOrigins(list).allows(origin) == isAllowed)
    }

    @Test(
        "refuses malformed lists of services",
        arguments: [
            "http://a.example", "a.example", "https://", "https://*", "https://a/b", "https://a.*", "*,https://a",
        ]
    )
    func noOrigins(list: String) {
        #expect(throws: FieldFault.self) { try WebPushOrigins(list) }
    }

    @Test("parses a key in each form that tools write")
    func key() throws {
        let key = P256.Signing.PrivateKey()
        let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
        let forms = [
            key.pemRepresentation, key.pemRepresentation + "\n", parameters + key.pemRepresentation,
            Base64.url.encode(key.rawRepresentation) + "\n",
        ]
        for form in forms {
            let read = try VAPIDKey(file: Array(form.utf8))
            #expect(read.publicKey == Base64.url.encode(key.publicKey.x963Representation))
        }
        for form in ["", "hunter2", parameters, "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----"] {
            do throws(FieldFault) {
                _ = try VAPIDKey(file: Array(form.utf8))
                Issue.record("\(form) was taken")
            } catch {
                #expect(!error.description.contains("hunter2"))
            }
        }
    }

    @Test(
        "accepts a mailto or https contact only",
        arguments: [
            ("mailto:push@example.com", true), ("https://example.com/contact", true), ("mailto:", false),
            ("mailto:push", false), ("push@example.com", false), ("http://example.com", false), ("mailto:a b@c", false),
            ("mailto:<a@b>", false), ("https://", false),
        ]
    )
    func subject(text: String, isOne: Bool) {
        #expect(VAPIDKey.isSubject(text) == isOne)
    }
}
