// Carillon · LogTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Support
import Testing

/// Logs of both programs: a request is found by its id, a job by the job's id.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct LogTests {
    private static let verbose = ["LOG_LEVEL": "debug", "LOG_FORMAT": "json"]

    /// The lines of a log; each must be a JSON object with the keys that every line has.
    private static func lines(_ process: ChildProcess, _ name: String) throws -> [[String: String]] {
        try process.errors().split(separator: "\n").map { text in
            let members = try JSONParser.parse(Array(text.utf8)).object
            let line = try #require(members, "\(text)").reduce(into: [String: String]()) {
                $0[$1.key] = $1.value.string
            }
            for key in ["at", "level", "logger", "message"] { #expect(line[key] != nil, "\(text)") }
            // Lines logged before the service has its name lack it.
            if line["logger"] == "carillon.\(name)" {
                #expect(line[name == "gateway" ? "node.id" : "dispatcher.name"] != nil, "\(text)")
            }
            return line
        }
    }

    @Test("a plain request id is kept, any other is replaced, and every answer carries one")
    func identifiers() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = try await Stack.token(user: "ada")
            func id(_ given: String?, _ path: String, token: String?) async throws -> String? {
                let headers = given.map { [(name: "x-request-id", value: $0)] } ?? []
                return try await gateway.call(.get, path, token: token, headers: headers).header("x-request-id")
            }
            #expect(try await id("trace-1/a.b:c", "/v1/notifications", token: token) == "trace-1/a.b:c")
            #expect(try await id("trace-2", "/v1/notifications", token: nil) == "trace-2")
            #expect(try await id("trace-3", "/v1/nothing", token: token) == "trace-3")
            #expect(try await id("trace-4", "/healthz", token: nil) == "trace-4")
            let made = try await id(nil, "/healthz", token: nil)
            let other = try await id("has a space", "/healthz", token: nil)
            let third = try await id(String(repeating: "x", count: 129), "/healthz", token: nil)
            for one in [made, other, third] { #expect(one?.wholeMatch(of: #/[0-9a-f]{16}/#) != nil) }
            #expect(Set([made, other, third]).count == 3)
        }
    }

    @Test("a job can be followed by its id from the request to the provider")
    func job() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: Self.verbose)
            let dispatcher = try await stack.startDispatcher(environment: Self.verbose)
            try await gateway.register(user: "ada", platform: "android", token: "phone")
            let answer = try await gateway.call(
                .post,
                "/v1/jobs",
                token: try await Stack.token(user: "app", scope: .service),
                json: #"{"id":"order-17","user":"ada","type":"payment_received","title":"Hello"}"#,
                headers: [(name: "x-request-id", value: "checkout-9")]
            )
            #expect(answer.status == 202)
            let entry = try #require(answer.body["entry"]?.string)
            try await stack.append([("id", "order-18"), ("user", "ada"), ("type", "no\nsuch\ntype")])
            try await eventually("all of it is in the dispatcher's log") {
                let log = dispatcher.errors()
                return log.contains("delivery ended") && log.contains("set aside")
            }

            let taken = try Self.lines(gateway.process, "gateway").filter { $0["request.id"] == "checkout-9" }
            let accepted = try #require(taken.first { $0["message"] == "job accepted" })
            #expect(accepted["job.id"] == "order-17" && accepted["job.entry"] == entry)
            let answered = try #require(taken.first { $0["message"] == "request answered" })
            #expect(answered["http.status"] == "202" && answered["http.path"] == "/v1/jobs")

            let lines = try Self.lines(dispatcher, "dispatcher")
            let ours = lines.filter { $0["job.id"] == "order-17" }
            #expect(ours.contains { $0["message"] == "job stored" && $0["job.entry"] == entry })
            let sent = try #require(ours.first { $0["message"] == "delivery ended" })
            #expect(sent["outcome"] == "accepted" && sent["provider"] == "fcm" && sent["job.entry"] == entry)
            let letter = try #require(lines.first { $0["message"] == "set aside as dead letters" })
            #expect(letter["job.id"] == "order-18" && letter["count"] == "1" && letter["level"] == "warning")
            #expect(letter["reason"]?.contains("type") == true)
        }
    }
}
