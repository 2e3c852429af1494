// Carillon · ImportTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

/// `gateway import`.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ImportTests {
    private static func run(
        _ stack: Stack,
        _ text: String,
        environment: [String: String] = [:]
    ) async throws -> (ChildProcess, ChildProcess.Exit) {
        let path = stack.directory.path + "/users.jsonl"
        try Data(text.utf8).write(to: URL(filePath: path))
        let process = try await stack.spawn("gateway", ["import", path], name: "import", environment: environment)
        return (process, try await process.waitForExit())
    }

    @Test("a clean file is imported in batches and may be imported again")
    func clean() async throws {
        try await Stack.with { stack in
            var lines: [String] = []
            for number in 0..<450 {
                let settings = #"{"zone":"Europe/Zurich","email":"u\#(number)@example.com"}"#
                let device = #"{"platform":"android","token":"t\#(number)","name":"phone"}"#
                let preference = #"{"type":"invoice_created","push":false}"#
                lines.append(
                    #"{"user_id":"u\#(number)","settings":\#(settings),"devices":[\#(device)],"#
                        + #""preferences":[\#(preference)],"topics":["news"]}"#
                )
            }
            let text = lines.joined(separator: "\r\n") + "\n\n"
            for _ in 0..<2 {
                let (process, exit) = try await Self.run(stack, text)
                #expect(exit == .code(0))
                #expect(
                    process.output().contains(
                        "imported 450 users, 450 devices, 450 preferences, 450 subscriptions; 0 faulty lines"
                    )
                )
                for table in ["users", "devices", "preferences", "subscriptions", "user_settings"] {
                    let count = try await stack.query("SELECT count(*) FROM carillon.\(table)").first?.int8(0)
                    #expect(count == 450, "\(table)")
                }
            }
        }
    }

    @Test("a large import reports its progress without a terminal, a small one does not")
    func progress() async throws {
        try await Stack.with { stack in
            let lines = (0..<10_150).map { #"{"user_id":"u\#($0)"}"# }
            let (small, smallExit) = try await Self.run(stack, lines.prefix(450).joined(separator: "\n"))
            #expect(smallExit == .code(0))
            #expect(!small.errors().contains(" users of "))
            let (large, largeExit) = try await Self.run(stack, lines.joined(separator: "\n"))
            #expect(largeExit == .code(0))
            let told = large.errors().split(separator: "\n").filter { $0.contains(" users of ") }
            #expect(told == ["10000 users of 10000 lines"])
            #expect(large.output().contains("imported 10150 users"))
        }
    }

    @Test("faults are reported by line, the other lines are imported, and the exit code is 65")
    func faults() async throws {
        try await Stack.with { stack in
            let long = String(repeating: "x", count: 1_100_000)
            let text = [
                #"{"user_id":"a"}"#, "{", #"{"user_id":"b","settings":{"zone":"Mars"}}"#, long, #"{}"#, "[1]",
                #"{"user_id":"c","devices":[{"platform":"palm"}],"colour":1}"#, #"{"user_id":"d"}"#,
            ].joined(separator: "\n")
            let (process, exit) = try await Self.run(stack, text)
            #expect(exit == .code(65))
            let errors = process.errors()
            for expected in [
                "line 2: line: is", "line 3: settings.zone: is no IANA time zone", "line 4: line: is longer than 1 MB",
                "line 5: user_id: is missing", "line 6: record: must be a JSON object",
                "line 7: devices[0].platform: must be one of ios, android, web", "line 7: colour: is not a field here",
            ] { #expect(errors.contains(expected), "\(expected) in \(errors)") }
            #expect(process.output().contains("imported 2 users"))
            #expect(process.output().contains("6 faulty lines"))
            let users = try await stack.query("SELECT user_id FROM carillon.users ORDER BY 1")
            let stored = try users.map { try $0.text(0) }
            #expect(stored == ["a", "d"])
        }
    }

    @Test("Web Push subscriptions outside the allowed origins are refused")
    func origins() async throws {
        try await Stack.with { stack in
            let subscription = JSONWriter.bytes(of: .string(stack.sandbox.subscription("ada").json))
            let token = String(decoding: subscription, as: UTF8.self)
            let line = #"{"user_id":"ada","devices":[{"platform":"web","token":\#(token)}]}"#
            let (refused, exit) = try await Self.run(
                stack, line, environment: ["WEBPUSH_ORIGINS": "https://*.push.apple.com"])
            #expect(exit == .code(65))
            #expect(refused.errors().contains("which is not among WEBPUSH_ORIGINS"))
            #expect(try await stack.query("SELECT FROM carillon.devices").count == 0)
            let (taken, _) = try await Self.run(stack, line, environment: ["WEBPUSH_ORIGINS": stack.sandbox.url])
            #expect(taken.output().contains("imported 1 users, 1 devices"))

            // An app's own list replaces the setting.
            let apps = "\(stack.directory.path)/apps.yaml"
            let key = stack.sandbox.vapidKeyPath
            try """
            apps:
              web:
                webpush: {key: \(key), subject: "mailto:ops@example.com", origins: "\(stack.sandbox.url)"}
            """.write(toFile: apps, atomically: true, encoding: .utf8)
            let named = #"{"user_id":"bob","devices":[{"platform":"web","app":"web","token":\#(token)}]}"#
            let (own, _) = try await Self.run(
                stack, named, environment: ["WEBPUSH_ORIGINS": "https://*.push.apple.com", "APPS": apps])
            #expect(own.output().contains("imported 1 users, 1 devices"), "\(own.errors())")
        }
    }

    @Test("disabled quiet hours keep their times")
    func quietHours() async throws {
        try await Stack.with { stack in
            let lines = ["false", "true", "null"].enumerated().map { number, enabled in
                let hours = #"{"start":"22:00","end":"07:00","enabled":\#(enabled)}"#
                return #"{"user_id":"u\#(number)","settings":{"quiet_hours":\#(hours)}}"#
            }
            let (process, exit) = try await Self.run(stack, lines.joined(separator: "\n"))
            #expect(exit == .code(0), "\(process.errors())")
            let rows = try await stack.query(
                "SELECT quiet_start::int4, quiet_end::int4, quiet_off FROM carillon.user_settings ORDER BY user_id")
            #expect(try rows.map { try $0.int4(0) } == [1_320, 1_320, 1_320])
            #expect(try rows.map { try $0.int4(1) } == [420, 420, 420])
            #expect(try rows.map { try $0.bool(2) } == [true, false, false])
            let gateway = try await stack.startGateway()
            let settings = try await gateway.call(.get, "/v1/settings", token: try await Stack.token(user: "u0"))
            #expect(settings.body["quiet_hours"] == .null)
        }
    }

    @Test("a missing file is named")
    func missing() async throws {
        try await Stack.with { stack in
            let process = try await stack.spawn("gateway", ["import", "/nowhere/users.jsonl"], name: "import")
            #expect(try await process.waitForExit() != .code(0))
            #expect(process.errors().contains("/nowhere/users.jsonl: No such file or directory"))
        }
    }
}
