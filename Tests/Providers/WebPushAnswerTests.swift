// Carillon · WebPushAnswerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Model
import Providers
import Testing

@Suite("Answers of push services", .timeLimit(.minutes(3)))
struct WebPushAnswerTests {
    private static func read(
        _ status: Int, _ body: String = "", location: String? = nil, retryAfter: Duration? = nil
    ) -> ProviderAnswer {
        WebPushAnswer.read(status: status, body: Array(body.utf8), location: location, retryAfter: retryAfter)
    }

    @Test("What was taken has its place as id", arguments: [200, 201, 202])
    func accepted(status: Int) {
        #expect(Self.read(status, location: "https://push.example/m/1") == .accepted(id: "https://push.example/m/1"))
        #expect(Self.read(status) == .accepted(id: nil))
        let long = String(repeating: "a", count: 300)
        #expect(Self.read(status, location: long) == .accepted(id: String(long.prefix(256))))
    }

    @Test(
        "Each refusal is of its class",
        arguments: [
            (404, "", .deadToken(reason: "HTTP_404", evidence: nil)),
            (410, #"{"code":410,"errno":106,"error":"Gone"}"#, .deadToken(reason: "Gone", evidence: nil)),
            (400, "", .refused(reason: "HTTP_400")),
            (400, #"{"reason":"BadDeviceToken"}"#, .refused(reason: "BadDeviceToken")),
            (400, #"{"reason":"VapidPkHashMismatch"}"#, .configuration(reason: "VapidPkHashMismatch")),
            (401, #"{"error":"Unauthorized"}"#, .configuration(reason: "Unauthorized")),
            (403, #"{"reason":"BadJwtToken"}"#, .configuration(reason: "BadJwtToken")),
            (413, "", .refused(reason: "HTTP_413")),
            (307, "", .refused(reason: "HTTP_307")),
            (429, "", .retry(reason: "HTTP_429", after: .seconds(60))),
            (500, "", .retry(reason: "HTTP_500", after: .seconds(10))),
            (503, "", .retry(reason: "HTTP_503", after: .seconds(10))),
        ] as [(Int, String, ProviderAnswer)]
    )
    func classes(status: Int, body: String, answer: ProviderAnswer) {
        #expect(Self.read(status, body) == answer)
    }

    @Test("The service's own delay counts", arguments: [429, 500, 503])
    func delay(status: Int) {
        #expect(
            Self.read(status, retryAfter: .seconds(7)) == .retry(reason: "HTTP_\(status)", after: .seconds(7)))
    }

    @Test("A reason is a plain word, as anybody may run a service", arguments: ["", "a\nb", "<b>", "é"])
    func reasons(text: String) {
        #expect(Self.read(400, #"{"reason":"\#(text)"}"#) == .refused(reason: "HTTP_400"))
    }
}
