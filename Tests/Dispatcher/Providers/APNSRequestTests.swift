// Carillon · APNSRequestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Testing

@testable import Core
@testable import Providers

@Suite("APNs requests", .timeLimit(.minutes(10)))
struct APNSRequestTests {
    @Test("writes a minimal message with its headers")
    func least() throws {
        let request = try Messages.apns(Messages.make())
        #expect(request.url == "https://apns.example/3/device/a1b2")
        #expect(
            Messages.headers(request) == [
                "authorization: bearer jwt", "apns-topic: org.example.app", "apns-push-type: alert",
                "apns-priority: 10",
                "apns-id: 7d975bb1-a3c9-8691-8573-27632b95831f",
                "apns-collapse-id: 01a1f866-0d7b-841c-a9a6-5597aa0575f3",
            ]
        )
        #expect(
            Messages.text(request)
                == #"{"aps":{"alert":{"title":"Hello","body":"World"},"badge":3,"sound":"default"},"#
                + #""notification_id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":"greeting"}"#)
    }

    @Test(
        "an expiry beyond Apple's storage time is clamped",
        arguments: [
            (.seconds(2_591_999), "1797760799"), (.seconds(2_592_001), "1797760800"),
            (.seconds(8_000 * 365 * 86_400), "1797760800"),
        ] as [(Duration, String)])
    func expiration(lifetime: Duration, expected: String) throws {
        let request = try Messages.apns(Messages.make { $0.expiresAt = Messages.now + lifetime })
        #expect(request.headers.first { $0.name == "apns-expiration" }?.value == expected)
    }

    @Test("a repeat keeps the delivery id; another device and a retraction have different ids")
    func deliveryID() throws {
        func id(_ device: UInt64, _ message: PushMessage) throws -> String? {
            let device = Device(
                id: NotificationID(high: 1, low: device), user: "u1", platform: .ios, provider: .apns, app: "default",
                environment: .production, token: "a1b2", registeredAt: Messages.now)
            let request = try APNSRequest.make(
                message, device: device, endpoint: "https://apns.example", topic: "t", providerToken: "jwt")
            return request.headers.first { $0.name == "apns-id" }?.value
        }
        let message = Messages.make()
        var retraction = message
        retraction.purpose = .retract
        #expect(try id(2, message) == id(2, Messages.make(unread: 9)))
        #expect(try Set([id(2, message), id(3, message), id(2, retraction), id(2, Messages.make())]).count == 3)
    }

    @Test("a message with every field; data cannot replace our own")
    func everything() throws {
        let request = try Messages.apns(
            Messages.make {
                $0.severity = .alert
                $0.category = "payments"
                $0.data = Array(
                    #"{"invoice":"i9","n":1.50,"aps":{"badge":99},"type":"x","notification_id":"y","url":"z"}"#.utf8)
                $0.extras.url = "app://i9"
                $0.extras.sound = "ding"
                $0.extras.badge = 9
                $0.collapseKey = "order 5"
                $0.expiresAt = Messages.now + .milliseconds(90_900)
            })
        #expect(
            Messages.headers(request).dropFirst(3) == [
                "apns-priority: 10", "apns-id: 7d975bb1-a3c9-8691-8573-27632b95831f", "apns-expiration: 1795168890",
                "apns-collapse-id: order 5",
            ]
        )
        #expect(
            Messages.text(request)
                == #"{"aps":{"alert":{"title":"Hello","body":"World"},"badge":9,"sound":"ding","category":"payments","#
                + #""interruption-level":"time-sensitive"},"#
                + #""notification_id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":"greeting","url":"app://i9","#
                + #""invoice":"i9","n":1.50}"#)
    }

    @Test(
        "a collapse key that the header cannot hold becomes a stable hash, also in the retraction",
        arguments: [
            (String(repeating: "k", count: 64), true), (String(repeating: "k", count: 65), false), ("é", false),
            ("a\r\napns-topic: other", false), ("a\u{7F}", false), ("order/5:1", true), (" order", false),
            ("order ", false),
        ]
    )
    func collapseID(key: String, isKey: Bool) throws {
        func name(_ message: PushMessage) throws -> String? {
            let headers = try Messages.apns(message).headers
            #expect(headers.count == 6)
            return headers.first { $0.name == "apns-collapse-id" }?.value
        }
        var message = Messages.make { $0.collapseKey = key }
        let hash = String(Base64.url.encode(SHA256.hash(data: Array(key.utf8))).prefix(32))
        #expect(try name(message) == (isKey ? key : hash))
        message.purpose = .retract
        #expect(try Messages.json(Messages.apns(message))["retract"]?.string == (isKey ? key : hash))
    }

    @Test("data is dropped only if it does not fit, to the byte")
    func dataGivesWay() throws {
        func request(_ length: Int) throws -> ProviderRequest {
            try Messages.apns(
                Messages.make { $0.data = Array(#"{"k":"\#(String(repeating: "a", count: length))"}"#.utf8) })
        }
        let room = 4_096 - (try request(0).body.count)
        #expect(try request(room).body.count == 4_096)
        let reduced = try Messages.json(request(room + 1))
        #expect(reduced.object?.map(\.key) == ["aps", "notification_id", "type"])
        #expect(reduced["aps"]?["alert"]?["body"]?.string == "World")
    }

    @Test(
        "a long body is cut by little more than necessary",
        arguments: ["a", "é", "😀", "👩🏽‍🚒", "e\u{301}", "\"", "\u{1}"]
    )
    func bodyIsShortened(character: String) throws {
        let body = String(String(repeating: character, count: 4_096).unicodeScalars.prefix(4_096))
        let request = try Messages.apns(
            Messages.make {
                $0.title = String(repeating: "😀", count: 255)
                $0.body = body
                $0.data = Array(#"{"k":"v"}"#.utf8)
            })
        #expect((3_900...4_096).contains(request.body.count))
        let sent = try #require(try Messages.json(request)["aps"]?["alert"]?["body"]?.string)
        #expect(sent.hasSuffix("…"))
    }

    @Test("a body that fits without the data is not cut")
    func keepsBody() throws {
        let body = String(repeating: "a", count: 3_800)
        let request = try Messages.apns(
            Messages.make {
                $0.body = body
                $0.data = Array(#"{"k":"\#(String(repeating: "v", count: 400))"}"#.utf8)
            })
        #expect(try Messages.json(request)["aps"]?["alert"]?["body"]?.string == body)
    }

    @Test("an image is dropped after the data and before the body is cut", arguments: [100, 3_700])
    func imageGivesWay(length: Int) throws {
        let body = String(repeating: "b", count: length)
        func request(_ image: String) throws -> JSONValue {
            try Messages.json(
                Messages.apns(
                    Messages.make {
                        $0.body = body
                        $0.data = Array(#"{"k":"v"}"#.utf8)
                        $0.extras.image = image
                    }))
        }
        let small = try request("https://example.org/i.png")
        #expect(small["image"]?.string == "https://example.org/i.png")
        #expect(small["aps"]?["mutable-content"]?.integer == 1)
        let large = try request(String(repeating: "é", count: 2_048))
        #expect(large.object?.map(\.key) == ["aps", "notification_id", "type"])
        #expect(large["aps"]?["mutable-content"] == nil)
        #expect(large["aps"]?["alert"]?["body"]?.string == body)
    }

    @Test("the longest droppable fields still fit after dropping")
    func longest() throws {
        let request = try Messages.apns(
            Messages.make {
                $0.title = String(repeating: "😀", count: 255)
                $0.body = String(repeating: "é", count: 4_096)
                $0.data = Array(#"{"k":"\#(String(repeating: "v", count: 16_000))"}"#.utf8)
                $0.extras.image = String(repeating: "é", count: 2_048)
            })
        #expect((3_900...4_096).contains(request.body.count))
    }

    @Test(
        "a message that cannot be shortened is refused, naming the part that is too large",
        arguments: [("platform.apns", 8_192, 5), ("title", 10, 1_000)]
    )
    func tooLarge(name: String, platform: Int, title: Int) throws {
        let block = String(repeating: "x", count: platform)
        let message = Messages.make {
            // Longer than a job may be.
            $0.title = String(repeating: "\u{1}", count: title)
            $0.extras.platform = Array(#"{"apns":{"aps":{"x":"\#(block)"}}}"#.utf8)
        }
        #expect(throws: MessageRefusal("too_large:\(name)")) { try Messages.apns(message) }
    }

    @Test(
        "all but bulk messages have high priority, at any severity",
        arguments: [
            (Lane.critical, Severity.info, nil, "10"), (.normal, .warning, nil, "10"), (.bulk, .alert, nil, "5"),
            (.bulk, .info, PushPriority.high, "10"), (.critical, .alert, .normal, "5"),
        ] as [(Lane, Severity, PushPriority?, String)])
    func priority(lane: Lane, severity: Severity, own: PushPriority?, expected: String) throws {
        let request = try Messages.apns(
            Messages.make {
                $0.lane = lane
                $0.severity = severity
                $0.extras.pushPriority = own
            })
        #expect(Messages.headers(request).contains("apns-priority: \(expected)"))
        let level = try Messages.json(request)["aps"]?["interruption-level"]?.string
        #expect(level == (severity == .alert ? "time-sensitive" : nil))
    }

    @Test(
        "a switch may be a JSON boolean or Apple's number",
        arguments: [("1", true), ("true", true), ("1.0", true), ("0", false), ("false", false), ("null", false)])
    func switches(value: String, isOn: Bool) throws {
        let request = try Messages.apns(
            Messages.make {
                // The image alone sets mutable-content.
                $0.extras.image = "https://example.org/i.png"
                $0.extras.platform = Array(
                    #"{"apns":{"mutable_content":\#(value),"content_available":\#(value)}}"#.utf8)
            })
        let aps = try Messages.json(request)["aps"]
        #expect(aps?["mutable-content"]?.integer == (isOn ? 1 : nil))
        #expect(aps?["content-available"]?.integer == (isOn ? 1 : nil))
    }

    @Test("a job may set APNs fields: short names, members of aps, headers")
    func overrides() throws {
        let request = try Messages.apns(
            Messages.make {
                $0.severity = .alert
                $0.extras.platform = Array(
                    #"""
                    {"apns":{"thread_id":"t","interruption_level":"passive","mutable_content":true,"subtitle":"S",
                    "title_loc_key":"K","title_loc_args":["a"],"loc_key":"L","priority":1,"unknown":1,
                    "sound":{"critical":1,"name":"x","volume":0.5},"aps":{"relevance-score":0.5,"badge":null}}}
                    """#.utf8)
            })
        let aps = try #require(try Messages.json(request)["aps"])
        #expect(aps["thread-id"]?.string == "t")
        #expect(aps["interruption-level"]?.string == "passive")
        #expect(aps["mutable-content"]?.integer == 1)
        #expect(aps["alert"]?["subtitle"]?.string == "S")
        #expect(aps["alert"]?["title-loc-key"]?.string == "K")
        #expect(aps["alert"]?["title-loc-args"]?.strings == ["a"])
        #expect(aps["alert"]?["loc-key"]?.string == "L")
        #expect(aps["alert"]?["title"]?.string == "Hello")
        #expect(aps["sound"]?["critical"]?.integer == 1)
        #expect(aps["relevance-score"] == .number("0.5"))
        #expect(aps["badge"] == nil)
        #expect(Messages.headers(request).contains("apns-priority: 1"))
    }

    @Test("keeps stored JSON that is beyond the limits of a new job")
    func earlierLimits() throws {
        let marks = "a" + String(repeating: "\u{300}", count: 65)
        let request = try Messages.apns(
            Messages.make {
                $0.data = Array(#"{"k":"\#(marks)"}"#.utf8)
                $0.extras.platform = Array(#"{"apns":{"thread_id":"\#(marks)"}}"#.utf8)
            })
        let payload = try JSONParser.parse(stored: request.body)
        #expect(payload["k"]?.string == marks)
        #expect(payload["aps"]?["thread-id"]?.string == marks)
    }

    @Test("a background push shows nothing and has priority 5")
    func background() throws {
        let request = try Messages.apns(
            Messages.make {
                $0.severity = .alert
                $0.extras.platform = Array(#"{"apns":{"push_type":"background","priority":10}}"#.utf8)
            })
        #expect(Messages.headers(request).contains("apns-push-type: background"))
        #expect(Messages.headers(request).contains("apns-priority: 5"))
        #expect(try Messages.json(request)["aps"] == .object([JSONMember("content-available", .number("1"))]))
    }

    @Test("a notification read elsewhere is removed with a background push")
    func retraction() throws {
        var message = Messages.make {
            $0.collapseKey = "k"
            $0.data = Array(#"{"retract":"theirs"}"#.utf8)
            $0.extras.image = "https://example.org/i.png"
            $0.extras.platform = Array(#"{"apns":{"sound":"ding","loc_key":"L","priority":10}}"#.utf8)
            // An expired notification must still be removed.
            $0.expiresAt = Messages.now + .seconds(-5)
        }
        message.purpose = .retract
        let request = try Messages.apns(message)
        #expect(
            Messages.headers(request).dropFirst(2).filter { !$0.hasPrefix("apns-id") } == [
                // Apple must not store it in place of an alert for a phone out of reach.
                "apns-push-type: background", "apns-priority: 5", "apns-expiration: 0",
            ])
        #expect(
            Messages.text(request)
                == #"{"aps":{"content-available":1},"type":"greeting","retract":"k","#
                + #""notification_id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","created_at":"2026-11-20T10:00:00.000Z"}"#)
    }
}
