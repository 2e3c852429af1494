// Carillon · FCMAnswerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Providers

@Suite("FCM answers", .timeLimit(.minutes(10)))
struct FCMAnswerTests {
    private static let fcmError = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
    private static let badRequest = "type.googleapis.com/google.rpc.BadRequest"

    private static func body(_ status: String, code: String? = nil, message: String = "m", field: String? = nil)
        -> [UInt8]
    {
        var details: [String] = [#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","errorCode":"NOT_THIS"}"#]
        if let code { details.append(#"{"@type":"\#(Self.fcmError)","errorCode":"\#(code)"}"#) }
        if let field { details.append(#"{"@type":"\#(Self.badRequest)","fieldViolations":[{"field":"\#(field)"}]}"#) }
        let list = details.joined(separator: ",")
        return Array(#"{"error":{"code":1,"message":"\#(message)","status":"\#(status)","details":[\#(list)]}}"#.utf8)
    }

    @Test("an accepted message has FCM's name")
    func accepted() {
        let body = Array(#"{"name":"projects/p/messages/0:1"}"#.utf8)
        #expect(FCMAnswer.read(status: 200, body: body, retryAfter: nil) == .accepted(id: "projects/p/messages/0:1"))
    }

    @Test(
        "a success without FCM's message name is not an answer",
        arguments: [
            "", "<html><body>Welcome</body></html>", #"{"name":"projects/p/mess"#, "{}", #"{"name":""}"#,
            #"{"name":7}"#, #"["name"]"#,
        ]
    )
    func unknown(body: String) {
        #expect(FCMAnswer.read(status: 200, body: Array(body.utf8), retryAfter: nil) == nil)
    }

    @Test("an HTML page is not FCM's and is retried")
    func page() {
        func read(_ status: Int) -> ProviderAnswer? {
            FCMAnswer.read(status: status, body: Array("<html>".utf8), isPage: true, retryAfter: nil)
        }
        for status in [400, 404, 405, 413] {
            #expect(read(status) == .retry(reason: "HTTP_\(status)", after: .seconds(10)))
        }
        #expect(read(403) == .configuration(reason: "HTTP_403"))
        #expect(read(200) == nil)
        // A proxy's limit is not the project's quota: it affects only this delivery, for any delay.
        #expect(read(429) == .retry(reason: "HTTP_429", after: .seconds(10)))
        let patient = FCMAnswer.read(
            status: 429, body: Array("<html>".utf8), isPage: true, retryAfter: .seconds(86_400))
        #expect(patient == .retry(reason: "HTTP_429", after: .seconds(86_400)))
    }

    @Test("a cut refusal is retried; a complete one counts, as does a sufficient status")
    func cut() {
        func read(_ status: Int, _ body: [UInt8], retryAfter: Duration? = nil) -> ProviderAnswer? {
            FCMAnswer.read(status: status, body: body, isComplete: false, retryAfter: retryAfter)
        }
        let whole = Self.body("NOT_FOUND", code: "UNREGISTERED")
        for status in [400, 401, 403, 404, 413] {
            for body in [[], Array(whole.dropLast(3))] {
                #expect(read(status, body) == .retry(reason: "answer_cut:\(status)", after: .seconds(10)))
            }
        }
        #expect(read(404, [], retryAfter: .seconds(7)) == .retry(reason: "answer_cut:404", after: .seconds(7)))
        #expect(read(404, whole) == .deadToken(reason: "UNREGISTERED", evidence: nil))
        #expect(read(429, Array("{".utf8)) == .slowDown(reason: "HTTP_429", after: .seconds(60)))
        #expect(read(503, Array("{".utf8)) == .retry(reason: "HTTP_503", after: .seconds(10)))
        #expect(read(200, Array(#"{"name":"projects/p/mess"#.utf8)) == nil)
    }

    @Test(
        "only a complaint about the token itself makes it dead",
        arguments: [
            ("INVALID_ARGUMENT", "The registration token is not a valid FCM registration token", nil, true),
            ("INVALID_ARGUMENT", "Invalid registration token", "message.token", true),
            ("INVALID_ARGUMENT", "Request contains an invalid argument.", "message.token", true),
            ("INVALID_ARGUMENT", "Android message is too big", nil, false),
            ("INVALID_ARGUMENT", "The registration token belongs to another Package Name", nil, false),
            ("INVALID_ARGUMENT", "Invalid data payload key: from", "message.data[0].key", false),
            (nil, "Invalid JSON payload received.", "message.token", false),
            (nil, "Invalid JSON payload received.", nil, false),
        ] as [(String?, String, String?, Bool)]
    )
    func invalidArgument(code: String?, message: String, field: String?, isDead: Bool) {
        let body = Self.body("INVALID_ARGUMENT", code: code, message: message, field: field)
        let expected: ProviderAnswer =
            isDead ? .deadToken(reason: "INVALID_ARGUMENT", evidence: nil) : .refused(reason: "INVALID_ARGUMENT")
        #expect(FCMAnswer.read(status: 400, body: body, retryAfter: nil) == expected)
    }

    @Test(
        "waits as long as FCM asks, else a minute for the quota and 10 s for others",
        arguments: [
            (429, body("RESOURCE_EXHAUSTED"), "QUOTA_EXCEEDED"), (429, [], "HTTP_429"),
            (500, body("UNKNOWN", code: "UNSPECIFIED_ERROR"), "UNSPECIFIED_ERROR"),
            (503, body("UNAVAILABLE", code: "UNAVAILABLE"), "UNAVAILABLE"), (302, [], "HTTP_302"),
        ] as [(Int, [UInt8], String)]
    )
    func delays(status: Int, body: [UInt8], reason: String) {
        for asked in [nil, Duration.seconds(7)] {
            let expected: ProviderAnswer =
                status == 429
                ? .slowDown(reason: reason, after: asked ?? .seconds(60))
                : .retry(reason: reason, after: asked ?? .seconds(10))
            #expect(FCMAnswer.read(status: status, body: body, retryAfter: asked) == expected)
        }
    }

    @Test("a message that is too long for Google's proxy is refused")
    func tooLong() {
        #expect(FCMAnswer.read(status: 413, body: [], retryAfter: nil) == .refused(reason: "HTTP_413"))
    }

    @Test("recorded reasons are cut")
    func bounded() {
        let body = Self.body("S", code: String(repeating: "x", count: 10_000))
        #expect(
            FCMAnswer.read(status: 400, body: body, retryAfter: nil)
                == .refused(reason: String(repeating: "x", count: 64)))
    }
}
