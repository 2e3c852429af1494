// Carillon · APNSAnswerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Providers

@Suite("APNs answers", .timeLimit(.minutes(10)))
struct APNSAnswerTests {
    private static func read(
        _ status: Int, _ body: String, isPage: Bool = false, retryAfter: Duration? = nil
    ) -> ProviderAnswer? {
        APNSAnswer.read(
            status: status, body: Array(body.utf8), isPage: isPage, identifier: "id-1", retryAfter: retryAfter)
    }

    @Test("an accepted message has an id")
    func accepted() {
        #expect(Self.read(200, "") == .accepted(id: "id-1"))
    }

    @Test("an unknown reason is cut to 64 code points")
    func longReason() {
        // One character.
        let joined = "a" + String(repeating: "\u{200D}", count: 300)
        let cut = "a" + String(repeating: "\u{200D}", count: 63)
        #expect(Self.read(400, #"{"reason":"\#(joined)"}"#) == .refused(reason: cut))
    }

    @Test("a success without Apple's id, or with a body, is not an answer")
    func notUnderstood() {
        for identifier in [nil, ""] {
            #expect(APNSAnswer.read(status: 200, body: [], identifier: identifier, retryAfter: nil) == nil)
        }
        for body in ["<html>", "{}", #"{"reason":"BadDeviceToken"}"#] { #expect(Self.read(200, body) == nil) }
    }

    @Test("an HTML page is not Apple's and is retried; 403 and 410 count anyway")
    func page() {
        for status in [400, 404, 405, 413] {
            #expect(Self.read(status, "<html>", isPage: true) == .retry(reason: "HTTP_\(status)", after: nil))
        }
        #expect(Self.read(403, "<html>", isPage: true) == .configuration(reason: "HTTP_403"))
        #expect(Self.read(410, "<html>", isPage: true) == .deadToken(reason: "HTTP_410", evidence: nil))
        #expect(Self.read(400, #"{"reason":"BadPriority"}"#, isPage: true) == .refused(reason: "BadPriority"))
    }

    @Test("a cut refusal is retried; a complete one counts, as do 410, 429 and 5xx")
    func cut() {
        func read(_ status: Int, _ body: String, retryAfter: Duration? = nil) -> ProviderAnswer? {
            APNSAnswer.read(
                status: status, body: Array(body.utf8), isComplete: false, identifier: "id-1", retryAfter: retryAfter)
        }
        for status in [400, 403, 404, 405, 413] {
            for body in ["", #"{"reason":"BadDev"#] {
                #expect(read(status, body) == .retry(reason: "answer_cut:\(status)", after: nil))
            }
        }
        #expect(read(403, "", retryAfter: .seconds(7)) == .retry(reason: "answer_cut:403", after: .seconds(7)))
        #expect(
            read(400, #"{"reason":"BadDeviceToken"}"#) == .deadToken(reason: "BadDeviceToken", evidence: nil))
        #expect(read(410, #"{"reason":"Unreg"#) == .deadToken(reason: "HTTP_410", evidence: nil))
        #expect(read(429, "{") == .retryDevice(reason: "HTTP_429", after: .seconds(60)))
        #expect(read(503, "{") == .retry(reason: "HTTP_503", after: nil))
    }

    @Test("Apple's timestamps are in milliseconds", arguments: ["Unregistered", "ExpiredToken"])
    func evidence(reason: String) {
        let answer = Self.read(410, #"{"reason":"\#(reason)","timestamp":1795168800123}"#)
        #expect(answer == .deadToken(reason: reason, evidence: Timestamp(milliseconds: 1_795_168_800_123)))
    }

    @Test(
        "ignores an invalid timestamp",
        arguments: [
            "9223372036854775807", "-9223372036854775808", "-1", "253402300800000", "9223372036854775808", "1.5",
            #""now""#,
        ]
    )
    func noEvidence(timestamp: String) {
        let answer = Self.read(410, #"{"reason":"Unregistered","timestamp":\#(timestamp)}"#)
        #expect(answer == .deadToken(reason: "Unregistered", evidence: nil))
    }

    @Test(
        "our own faults are refused, and the token stays valid",
        arguments: [
            (400, "BadCollapseId"), (400, "BadExpirationDate"), (400, "BadMessageId"), (400, "BadPriority"),
            (400, "MissingDeviceToken"), (400, "DuplicateHeaders"), (400, "InvalidPushType"), (400, "PayloadEmpty"),
            (404, "BadPath"), (405, "MethodNotAllowed"), (413, "PayloadTooLarge"),
        ]
    )
    func refused(status: Int, reason: String) {
        #expect(Self.read(status, #"{"reason":"\#(reason)"}"#) == .refused(reason: reason))
    }

    @Test("an expired provider token is renewed")
    func staleCredential() {
        #expect(
            Self.read(403, #"{"reason":"ExpiredProviderToken"}"#) == .staleCredential(reason: "ExpiredProviderToken"))
    }

    @Test(
        "a rejected credential is a configuration fault",
        arguments: [
            "InvalidProviderToken", "MissingProviderToken", "BadCertificate", "BadCertificateEnvironment",
            "UnrelatedKeyIdInToken", "Forbidden",
        ]
    )
    func configuration(reason: String) {
        #expect(Self.read(403, #"{"reason":"\#(reason)"}"#) == .configuration(reason: reason))
    }

    @Test(
        "Retry-After is obeyed but never shortens Apple's own delays",
        arguments: [
            (400, "IdleTimeout", 7, 7), (500, "InternalServerError", 7, 7), (503, "ServiceUnavailable", 7, 7),
            (503, "Shutdown", 7, 7), (500, "SomethingNew", 7, 7), (429, "TooManyRequests", 7, 60),
            (429, "TooManyRequests", 90, 90), (429, "SomethingNew", 7, 60), (429, "SomethingNew", 90, 90),
            (429, "TooManyProviderTokenUpdates", 7, 1_200), (429, "TooManyProviderTokenUpdates", 1_800, 1_800),
        ]
    )
    func retryAfter(status: Int, reason: String, asked: Int, seconds: Int) {
        let expected: ProviderAnswer =
            switch (status, reason) {
            case (429, "TooManyProviderTokenUpdates"): .slowDown(reason: reason, after: .seconds(seconds))
            case (429, _): .retryDevice(reason: reason, after: .seconds(seconds))
            default: .retry(reason: reason, after: .seconds(seconds))
            }
        #expect(Self.read(status, #"{"reason":"\#(reason)"}"#, retryAfter: .seconds(asked)) == expected)
    }

    @Test("without a JSON body the status decides", arguments: ["", "<html>", "{}", #"{"reason":1}"#])
    func noReason(body: String) {
        #expect(Self.read(400, body) == .refused(reason: "HTTP_400"))
        #expect(Self.read(500, body) == .retry(reason: "HTTP_500", after: nil))
    }

    @Test("recorded reasons are cut")
    func bounded() {
        let answer = Self.read(400, #"{"reason":"\#(String(repeating: "x", count: 10_000))"}"#)
        #expect(answer == .refused(reason: String(repeating: "x", count: 64)))
    }
}
