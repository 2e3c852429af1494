// Carillon · DeliveryLogTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

/// The dispatcher logs one line an attempt, with outcome and reason.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct DeliveryLogTests {
    private static let verbose = ["LOG_LEVEL": "debug", "LOG_FORMAT": "json"]

    private struct Case {
        /// The device token, which selects the sandbox's fault; also the user and the job.
        let token: String
        var platform = "android"
        let outcome: String
        var reason: String?
    }

    private static let cases = [
        Case(token: "plain", outcome: "accepted"),
        Case(token: "html-once-1", outcome: "retry", reason: "HTTP_502"),
        Case(token: "half-once-1", outcome: "retry", reason: "HTTP_503"),
        Case(token: "empty-once-1", outcome: "retry", reason: "HTTP_500"),
        Case(token: "huge-once-1", outcome: "retry", reason: "unknown_outcome:not_understood"),
        Case(token: "reset-once-1", outcome: "retry", reason: "unknown_outcome:streamReset"),
        Case(token: "silent-once-1", outcome: "retry", reason: "unknown_outcome:timeout"),
        Case(token: "unregistered-1", outcome: "failed", reason: "UNREGISTERED"),
        Case(token: "invalid-1", outcome: "failed", reason: "INVALID_ARGUMENT"),
        Case(token: String(repeating: "ab", count: 32), platform: "ios", outcome: "retry", reason: "not_http2"),
    ]

    /// The complete lines with a message.
    private static func lines(_ process: ChildProcess, _ message: String) -> [[String: String]] {
        process.errors().split(separator: "\n").filter { $0.contains(message) }.compactMap { text in
            (try? JSONParser.parse(Array(text.utf8)))?.object?.reduce(into: [:]) { $0[$1.key] = $1.value.string }
        }
    }

    /// The line of a job's first attempt.
    private static func end(of job: String, _ dispatcher: ChildProcess) async throws -> [String: String] {
        // A silent call times out after 30 s.
        try await eventualValue("the log has the end of \(job)", within: .seconds(120)) {
            Self.lines(dispatcher, "delivery ended").first { $0["job.id"] == job && $0["attempt"] == "1" }
        }
    }

    @Test("a delivery's log line has its outcome and reason, and nothing of the provider's page")
    func faults() async throws {
        var configuration = SandboxConfiguration()
        configuration.speaksHTTP1Only = true
        try await ProviderSandbox.with(configuration: configuration) { old in
            try await Stack.with { stack in
                let authorities = stack.directory.path + "/authorities.pem"
                try [stack.sandbox.caPath, old.caPath].map { try String(contentsOfFile: $0, encoding: .utf8) }
                    .joined().write(toFile: authorities, atomically: true, encoding: .utf8)
                let gateway = try await stack.startGateway()
                let dispatcher = try await stack.startDispatcher(
                    environment: Self.verbose.merging(["APNS_ENDPOINT": old.url, "PROVIDER_CA": authorities]) { $1 })
                for item in Self.cases {
                    try await gateway.register(user: item.token, platform: item.platform, token: item.token)
                    try await stack.append([
                        ("id", item.token), ("user", item.token), ("type", "payment_received"), ("title", item.token),
                    ])
                }
                for item in Self.cases {
                    let line = try await Self.end(of: item.token, dispatcher)
                    #expect(line["outcome"] == item.outcome, "\(item.token)")
                    #expect(line["reason"] == item.reason, "\(item.token)")
                    #expect(line["provider"] == (item.platform == "ios" ? "apns" : "fcm"), "\(item.token)")
                    #expect(line["app"] == "default" && line["notification.id"] != nil, "\(item.token)")
                }
                #expect(!dispatcher.errors().contains("<html>"))
            }
        }
    }

    @Test("a long text is cut between characters, and data of every JSON type arrives as text")
    func content() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher(environment: Self.verbose)
            // One character of 18 bytes; 5,004 bytes in all.
            let family: Character = "\u{1F469}\u{200D}\u{1F469}\u{200D}\u{1F467}"
            let jobs = [
                ("long", ("body", String(repeating: family, count: 278))),
                ("kinds", ("data", #"{"count":3,"flag":true,"list":[1,"a"],"nested":{"a":null}}"#)),
            ]
            for (name, field) in jobs {
                try await gateway.register(user: name, platform: "android", token: name)
                try await stack.append([
                    ("id", name), ("user", name), ("type", "payment_received"), ("title", name), field,
                ])
                let line = try await Self.end(of: name, dispatcher)
                #expect(line["outcome"] == "accepted" && line["reason"] == nil, "\(name)")
            }
            func message(_ token: String) throws -> JSONValue? {
                guard let received = stack.sandbox.received().first(where: { $0.token == token }) else { return nil }
                return try JSONParser.parse(received.payload)["message"]
            }
            let body = try #require(try message("long")?["notification"]?["body"]?.string)
            #expect(body.last == "…" && body.count > 100)
            #expect(body.dropLast().allSatisfy { $0 == family })
            let data = try #require(try message("kinds")?["data"])
            #expect(data["count"]?.string == "3")
            #expect(data["flag"]?.string == "true")
            #expect(data["list"]?.string == #"[1,"a"]"#)
            #expect(data["nested"]?.string == #"{"a":null}"#)
        }
    }

    @Test("a device token with control characters is refused at registration and never logged")
    func token() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: Self.verbose)
            for (number, text) in [#"hunter2\u0007"#, #"hunter2\nX-Header: 1"#, #"hunter2\u0085"#].enumerated() {
                let id = "odd-\(number)"
                let answer = try await gateway.call(
                    .post, "/v1/devices", token: try await Stack.token(user: "ada"),
                    json: #"{"platform":"android","token":"\#(text)"}"#,
                    headers: [(name: "x-request-id", value: id)])
                #expect(answer.status == 422)
                #expect(answer.faults == ["token"])
                let line = try await eventualValue("it is told") {
                    Self.lines(gateway.process, "request answered").first { $0["request.id"] == id }
                }
                #expect(line["http.status"] == "422")
            }
            #expect(!gateway.process.errors().contains("hunter2"))
        }
    }
}
