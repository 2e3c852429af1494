// Carillon · WebPushRequestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Crypto
import Foundation
import Sandbox
import Testing

@testable import Core
@testable import Providers

@Suite("Push service requests", .timeLimit(.minutes(10)))
struct WebPushRequestTests {
    private static let browser = SandboxSubscription.Keys(id: "unit")
    private static let key = P256.Signing.PrivateKey()

    private static func subscription(endpoint: String = "https://push.example/s/1", bad: Bool = false) -> String {
        var point = Array(self.browser.privateKey.publicKey.x963Representation)
        if bad { point[64] ^= 1 }
        return #"{"endpoint":"\#(endpoint)","keys":{"p256dh":"\#(Base64.url.encode(point))","#
            + #""auth":"\#(Base64.url.encode(self.browser.secret))"}}"#
    }

    private static func channel(
        origins: WebPushOrigins = .any, shape: PushShape = .standard
    ) throws -> WebPushChannel {
        let key = try VAPIDKey(file: Array(self.key.pemRepresentation.utf8))
        return WebPushChannel(
            app: "default", tokens: VAPIDTokens(key: key, subject: "mailto:push@example.com"), origins: origins,
            shape: shape, encryption: try WebPushEncryption(),
            transfer: try TransferClient(configuration: TransferConfiguration()), now: { Messages.now })
    }

    private static func request(
        _ message: PushMessage, token: String = Self.subscription(), origins: WebPushOrigins = .any
    ) async throws -> ProviderRequest {
        try await self.channel(origins: origins).request(message, device: Messages.device(.webpush, token: token))
    }

    private static func payload(_ request: ProviderRequest) throws -> JSONValue {
        try JSONParser.parse(try self.browser.open(request.body))
    }

    private static func header(_ name: String, _ request: ProviderRequest) -> String? {
        request.headers.first { $0.name == name }?.value
    }

    @Test("encrypts a minimal message")
    func least() async throws {
        let request = try await Self.request(Messages.make())
        #expect(request.url == "https://push.example/s/1")
        #expect(
            Messages.headers(request).dropFirst() == [
                "content-encoding: aes128gcm", "content-type: application/octet-stream", "ttl: 2419200",
                "urgency: high",
            ]
        )
        let text = String(decoding: try Self.browser.open(request.body), as: UTF8.self)
        let id = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
        #expect(
            text
                == #"{"notification":{"title":"Hello","body":"World"},"notification_id":"\#(id)","type":"greeting","severity":"info","#
                + #""created_at":"2026-11-20T10:00:00.000Z","tag":"\#(id)","badge":3,"data":{"notification_id":"\#(id)","type":"greeting"}}"#
        )
    }

    @Test("encrypts a message with every field")
    func everything() async throws {
        let request = try await Self.request(
            Messages.make {
                $0.severity = .alert
                $0.data = Array(#"{"invoice":"i9","actions":[{"id":"pay","title":"Pay"}]}"#.utf8)
                $0.extras.url = "/i9"
                $0.extras.image = "https://img.example/9.png"
                $0.extras.badge = 9
                $0.collapseKey = "order 5"
                $0.expiresAt = Messages.now + .milliseconds(90_900)
            })
        #expect(Self.header("ttl", request) == "90")
        #expect(Self.header("urgency", request) == "high")
        let hash = SHA256.hash(data: Data("order 5".utf8))
        #expect(Self.header("topic", request) == String(Base64.url.encode(hash).prefix(32)))
        let payload = try Self.payload(request)
        #expect(payload["url"]?.string == "/i9")
        #expect(payload["image"]?.string == "https://img.example/9.png")
        #expect(payload["badge"]?.integer == 9)
        #expect(payload["tag"]?.string == "order 5")
        #expect(payload["actions"]?.array?.first?["title"]?.string == "Pay")
        #expect(payload["data"]?["invoice"]?.string == "i9")
        #expect(payload["data"]?["actions"] == nil)
    }

    @Test(
        "the time to live is at least a second and at most four weeks",
        arguments: [
            (.milliseconds(400), "1"), (.milliseconds(2_400), "2"), (.seconds(2_419_201), "2419200"),
        ] as [(Duration, String)])
    func timeToLive(lifetime: Duration, expected: String) async throws {
        let request = try await Self.request(Messages.make { $0.expiresAt = Messages.now + lifetime })
        #expect(Self.header("ttl", request) == expected)
    }

    @Test("a job may set urgency and options")
    func overrides() async throws {
        let request = try await Self.request(
            Messages.make {
                $0.extras.platform = Array(
                    #"{"webpush":{"urgency":"very-low","options":{"silent":true}},"fcm":{"urgency":"high"}}"#.utf8)
            })
        #expect(Self.header("urgency", request) == "very-low")
        #expect(try Self.payload(request)["options"]?["silent"]?.bool == true)
        let other = Messages.make { $0.extras.platform = Array(#"{"webpush":{"urgency":"now"}}"#.utf8) }
        #expect(Self.header("urgency", try await Self.request(other)) == "high")
    }

    @Test(
        "the urgency follows priority, severity and lane",
        arguments: [
            (Severity.alert, Lane.bulk, "normal"), (.warning, .critical, "high"), (.info, .normal, "high"),
            (.info, .bulk, "low"),
        ]
    )
    func urgency(severity: Severity, lane: Lane, expected: String) async throws {
        let message = Messages.make {
            $0.severity = severity
            $0.lane = lane
        }
        #expect(Self.header("urgency", try await Self.request(message)) == expected)
    }

    @Test("the token's audience is the subscription's service")
    func authorization() async throws {
        let token = Self.subscription(endpoint: "https://Push.Example:443/s/1")
        let value = try #require(Self.header("authorization", try await Self.request(Messages.make(), token: token)))
        let parts = value.dropFirst("vapid t=".count).components(separatedBy: ", k=")
        try #require(parts.count == 2)
        #expect(parts[1] == Base64.url.encode(Self.key.publicKey.x963Representation))
        let signed = try SignedToken(parts[0])
        #expect(signed.header["alg"]?.string == "ES256")
        #expect(signed.header["typ"]?.string == "JWT")
        #expect(signed.claims["aud"]?.string == "https://push.example")
        #expect(signed.claims["sub"]?.string == "mailto:push@example.com")
        #expect(signed.claims["exp"]?.integer == Messages.now.seconds + 43_200)
        let signature = try P256.Signing.ECDSASignature(rawRepresentation: signed.signature)
        #expect(Self.key.publicKey.isValidSignature(signature, for: signed.signed))
    }

    @Test("what fits to the byte is sent; then data, image and buttons are dropped")
    func givesWay() async throws {
        func message(_ length: Int, _ change: (inout Core.Notification) -> Void = { _ in }) -> PushMessage {
            Messages.make {
                $0.data = Array(
                    #"{"k":"\#(String(repeating: "a", count: length))","actions":[{"id":"b","title":"B"}]}"#.utf8)
                $0.extras.image = "https://img.example/9.png"
                $0.extras.url = "/i9"
                change(&$0)
            }
        }
        func keys(_ message: PushMessage) async throws -> [String] {
            let payload = try Self.payload(try await Self.request(message))
            let parts = ["url", "image", "actions"].filter { payload[$0] != nil }
            return parts + (payload["data"]?["k"] != nil ? ["k"] : [])
        }
        let room = 4_096 - (try await Self.request(message(0)).body.count)
        #expect(try await Self.request(message(room)).body.count == 4_096)
        #expect(try await keys(message(room)) == ["url", "image", "actions", "k"])
        #expect(try await keys(message(room + 1)) == ["url", "image", "actions"])
        let long = message(room + 1) { $0.body = String(repeating: "b", count: 3_626) }
        #expect(try await keys(long) == ["url", "actions"])
        #expect(
            try Self.payload(try await Self.request(long))["notification"]?["body"]?.string?.hasSuffix("…") == false)
    }

    @Test(
        "a long body is cut by little more than necessary",
        arguments: ["a", "é", "😀", "👩🏽‍🚒", "e\u{301}", "\"", "\u{1}"]
    )
    func bodyIsShortened(character: String) async throws {
        let body = String(String(repeating: character, count: 4_096).unicodeScalars.prefix(4_096))
        let request = try await Self.request(
            Messages.make {
                $0.title = String(repeating: "😀", count: 255)
                $0.body = body
                $0.data = Array(#"{"k":"v"}"#.utf8)
            })
        #expect((4_000...4_096).contains(request.body.count))
        let sent = try #require(try Self.payload(request)["notification"]?["body"]?.string)
        #expect(sent.hasSuffix("…"))
    }

    @Test("the largest possible message is sent without its link")
    func largest() async throws {
        let request = try await Self.request(
            Messages.make {
                $0.title = String(repeating: "\u{1}", count: 255)
                $0.body = String(repeating: "\u{1}", count: 4_096)
                $0.extras.url = "https://example.com/" + String(repeating: "😀", count: 2_000)
                $0.extras.image = "https://example.com/" + String(repeating: "😀", count: 2_000)
                $0.collapseKey = String(repeating: "\u{1}", count: 64)
                $0.data = Array(#"{"k":"\#(String(repeating: "a", count: 16_000))"}"#.utf8)
            })
        #expect(request.body.count <= 4_096)
        let payload = try Self.payload(request)
        #expect(payload["url"] == nil)
        #expect(payload["notification"]?["body"]?.string?.isEmpty == false)
    }

    @Test("organisations with the same collapse key have different topics and tags")
    func organisations() async throws {
        var topics: Set<String?> = []
        var tags: Set<String?> = []
        for org in ["", "a", "b"] {
            let request = try await Self.request(
                Messages.make {
                    $0.org = org
                    $0.collapseKey = "order 5"
                })
            let topic = Self.header("topic", request)
            #expect(topic?.utf8.count == 32)
            topics.insert(topic)
            tags.insert(try Self.payload(request)["tag"]?.string)
        }
        #expect(topics.count == 3 && tags.count == 3)
        #expect(tags.contains("order 5"))
    }

    @Test("a message whose kept keys alone exceed the limit is refused")
    func tooLarge() async throws {
        let message = Messages.make { $0.type = String(repeating: "\u{1}", count: 128) }
        let device = Messages.device(.webpush, token: Self.subscription())
        let small = try Self.channel(shape: PushShape(members: [("a", ["type"])]))
        let large = try Self.channel(shape: PushShape(members: "abcdef".map { (String($0), ["type"]) }))
        #expect(try await small.request(message, device: device).body.count <= 4_096)
        await #expect(throws: MessageRefusal("too_large")) {
            try await large.request(message, device: device)
        }
    }

    @Test("an unsendable message has a reason")
    func refused() async throws {
        let origins = try WebPushOrigins("https://*.push.apple.com")
        let table: [(String, WebPushOrigins, String)] = [
            ("nonsense", .any, "no_subscription"),
            (Self.subscription(endpoint: "http://push.example/1"), .any, "no_subscription"),
            (Self.subscription(bad: true), .any, "bad_subscription_key"),
            (Self.subscription(), origins, "origin_not_allowed"),
        ]
        for (token, origins, reason) in table {
            let refusal = await #expect(throws: MessageRefusal.self) {
                _ = try await Self.request(Messages.make(), token: token, origins: origins)
            }
            #expect(refusal?.reason == reason)
        }
    }
}

@Suite("VAPID tokens", .timeLimit(.minutes(10)))
struct VAPIDTokensTests {
    private static func tokens(capacity: Int = 256) throws -> VAPIDTokens {
        let key = try VAPIDKey(file: Array(P256.Signing.PrivateKey().pemRepresentation.utf8))
        return VAPIDTokens(key: key, subject: "mailto:push@example.com", capacity: capacity)
    }

    @Test("each origin has a token, renewed after half of its lifetime")
    func renewal() throws {
        let tokens = try Self.tokens()
        let first = try tokens.authorization(origin: "https://a.example", now: Messages.now)
        #expect(try tokens.authorization(origin: "https://b.example", now: Messages.now) != first)
        let later = Messages.now + .seconds(6 * 3_600)
        #expect(try tokens.authorization(origin: "https://a.example", now: later + .microseconds(-1)) == first)
        let second = try tokens.authorization(origin: "https://a.example", now: later)
        #expect(second != first)
        let claims = try SignedToken(second.dropFirst("vapid t=".count).prefix { $0 != "," }).claims
        #expect(claims["exp"]?.integer == later.seconds + 43_200)
    }

    @Test("a token from before the clock stepped back is replaced")
    func steppedBack() throws {
        let tokens = try Self.tokens()
        let ahead = try tokens.authorization(origin: "https://a.example", now: Messages.now + .seconds(13 * 3_600))
        let token = try tokens.authorization(origin: "https://a.example", now: Messages.now)
        #expect(token != ahead)
        // Calls that began a little earlier use it too.
        #expect(try tokens.authorization(origin: "https://a.example", now: Messages.now + .seconds(-1)) == token)
    }

    @Test("the cache never exceeds its capacity")
    func bound() throws {
        let tokens = try Self.tokens(capacity: 4)
        for number in 0..<20 {
            _ = try tokens.authorization(origin: "https://\(number).example", now: Messages.now)
            #expect(tokens.count <= 4)
        }
    }
}
