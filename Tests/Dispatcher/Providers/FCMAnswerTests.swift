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

    @Test(
        "each answer maps to its reaction",
        arguments: [
            (404, body("NOT_FOUND", code: "UNREGISTERED"), .deadToken(reason: "UNREGISTERED", evidence: nil)),
            (404, body("NOT_FOUND"), .refused(reason: "NOT_FOUND")),
            (
                403, body("PERMISSION_DENIED", code: "SENDER_ID_MISMATCH"),
                .deadToken(reason: "SENDER_ID_MISMATCH", evidence: nil)
            ),
            (403, body("PERMISSION_DENIED"), .configuration(reason: "PERMISSION_DENIED")),
            (
                401, body("UNAUTHENTICATED", code: "THIRD_PARTY_AUTH_ERROR"),
                .configuration(reason: "THIRD_PARTY_AUTH_ERROR", concernsAll: false)
            ),
            (401, body("UNAUTHENTICATED"), .staleCredential(reason: "UNAUTHENTICATED")),
            (
                429, body("RESOURCE_EXHAUSTED", code: "QUOTA_EXCEEDED"),
                .slowDown(reason: "QUOTA_EXCEEDED", after: .seconds(60))
            ),
            (429, body("RESOURCE_EXHAUSTED"), .slowDown(reason: "QUOTA_EXCEEDED", after: .seconds(60))),
            (429, [], .slowDown(reason: "HTTP_429", after: .seconds(60))),
            (
                429, body("RESOURCE_EXHAUSTED", code: "QUOTA_EXCEEDED", message: "Device message rate exceeded"),
                .retryDevice(reason: "QUOTA_EXCEEDED", after: .seconds(60))
            ),
            (503, body("UNAVAILABLE", code: "UNAVAILABLE"), .retry(reason: "UNAVAILABLE", after: .seconds(10))),
            (500, body("INTERNAL", code: "INTERNAL"), .retry(reason: "INTERNAL", after: .seconds(10))),
            (
                500, body("INTERNAL", code: "UNSPECIFIED_ERROR"),
                .retry(reason: "UNSPECIFIED_ERROR", after: .seconds(10))
            ),
            (502, Array("<html>".utf8), .retry(reason: "HTTP_502", after: .seconds(10))),
            (400, body("FAILED_PRECONDITION"), .refused(reason: "FAILED_PRECONDITION")),
            (413, [], .refused(reason: "HTTP_413")),
            (408, [], .retry(reason: "HTTP_408", after: .seconds(10))),
            (409, body("ABORTED"), .retry(reason: "ABORTED", after: .seconds(10))),
            (421, Array("Misdirected".utf8), .retry(reason: "HTTP_421", after: .seconds(10))),
            (425, body("ABORTED"), .retry(reason: "ABORTED", after: .seconds(10))),
            (499, body("CANCELLED"), .retry(reason: "CANCELLED", after: .seconds(10))),
            (302, [], .retry(reason: "HTTP_302", after: .seconds(10))),
        ] as [(Int, [UInt8], ProviderAnswer)]
    )
    func answers(status: Int, body: [UInt8], expected: ProviderAnswer) {
        #expect(FCMAnswer.read(status: status, body: body, retryAfter: nil) == expected)
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

    @Test("Retry-After is obeyed", arguments: [429, 500, 503])
    func retryAfter(status: Int) {
        let answer = FCMAnswer.read(status: status, body: Self.body("X"), retryAfter: .seconds(7))
        let expected: ProviderAnswer =
            status == 429 ? .slowDown(reason: "X", after: .seconds(7)) : .retry(reason: "X", after: .seconds(7))
        #expect(answer == expected)
    }

    @Test("recorded reasons are cut")
    func bounded() {
        let body = Self.body("S", code: String(repeating: "x", count: 10_000))
        #expect(
            FCMAnswer.read(status: 400, body: body, retryAfter: nil)
                == .refused(reason: String(repeating: "x", count: 64)))
    }

    @Test("unknown codes are recorded unchanged")
    func unknownCodes() {
        let answer = FCMAnswer.read(status: 400, body: Self.body("S", code: "NEW_ONE"), retryAfter: nil)
        #expect(answer == .refused(reason: "NEW_ONE"))
    }
}
