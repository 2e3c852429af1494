// Carillon · WebPushAnswerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Providers

@Suite("Push service answers", .timeLimit(.minutes(10)))
struct WebPushAnswerTests {
    private static func read(
        _ status: Int, _ body: String = "", isPage: Bool = false, location: String? = nil, retryAfter: Duration? = nil
    ) -> ProviderAnswer? {
        WebPushAnswer.read(
            status: status, body: Array(body.utf8), isPage: isPage, location: location, retryAfter: retryAfter)
    }

    @Test("an accepted message has its location as id", arguments: [200, 201, 202])
    func accepted(status: Int) {
        #expect(Self.read(status, location: "https://push.example/m/1") == .accepted(id: "https://push.example/m/1"))
        #expect(Self.read(status) == .accepted(id: nil))
        let long = String(repeating: "a", count: 300)
        #expect(Self.read(status, location: long) == .accepted(id: String(long.prefix(256))))
        // One character, but 901 bytes.
        let joined = "a" + String(repeating: "\u{200D}", count: 300)
        let cut = "a" + String(repeating: "\u{200D}", count: 255)
        #expect(Self.read(status, location: joined) == .accepted(id: cut))
        let body = Array(#"{"id":"\#(joined)"}"#.utf8)
        #expect(WebhookAnswer.read(status: status, body: body, retryAfter: nil) == .accepted(id: cut))
    }

    @Test("a page is not a success; a refusal with a page counts")
    func page() {
        for status in [200, 201, 202] { #expect(Self.read(status, "<html>", isPage: true) == nil) }
        #expect(Self.read(201, "<html>", isPage: true, location: "/m/1") == .accepted(id: "/m/1"))
        for status in [404, 410] {
            #expect(
                Self.read(status, "<html>", isPage: true) == .deadToken(reason: "HTTP_\(status)", evidence: nil))
        }
        #expect(Self.read(502, "<html>", isPage: true) == .retry(reason: "HTTP_502", after: .seconds(10)))
    }

    @Test("a cut 400 is retried, because Apple's may be about the key; other statuses count")
    func cut() {
        func read(_ status: Int, _ body: String) -> ProviderAnswer? {
            WebPushAnswer.read(
                status: status, body: Array(body.utf8), isComplete: false, location: nil, retryAfter: nil)
        }
        for body in ["", #"{"reason":"VapidPk"#] {
            #expect(read(400, body) == .retry(reason: "answer_cut:400", after: .seconds(10)))
            #expect(read(403, body) == .configuration(reason: "HTTP_403", concernsAll: false))
            #expect(read(404, body) == .deadToken(reason: "HTTP_404", evidence: nil))
            #expect(read(201, body) == .accepted(id: nil))
        }
        #expect(
            read(400, #"{"reason":"VapidPkHashMismatch"}"#)
                == .configuration(reason: "VapidPkHashMismatch", concernsAll: false))
    }

    @Test("waits as long as the service asks, else a minute if it throttles and 10 s if it fails")
    func delay() {
        for asked in [nil, Duration.seconds(7)] {
            for status in [408, 421, 425, 500, 502, 503, 599] {
                let answer = Self.read(status, retryAfter: asked)
                #expect(answer == .retry(reason: "HTTP_\(status)", after: asked ?? .seconds(10)))
            }
            for status in [406, 429] {
                let answer = Self.read(status, retryAfter: asked)
                #expect(answer == .retryDevice(reason: "HTTP_\(status)", after: asked ?? .seconds(60)))
            }
        }
    }

    @Test("only a service's known reasons count", arguments: ["", "<b>", "é", "HTTP_410", "Gone"])
    func reasons(text: String) {
        #expect(Self.read(400, #"{"reason":"\#(text)"}"#) == .refused(reason: "HTTP_400"))
    }
}
