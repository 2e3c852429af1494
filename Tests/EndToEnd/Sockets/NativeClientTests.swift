// Carillon · NativeClientTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

/// Messages of clients of the native dialect.
@Suite(.timeLimit(.minutes(10)))
struct NativeClientTests {
    /// The titles in a sync.
    private static func titles(_ sync: JSONValue) -> [String] {
        (sync["notifications"]?.array ?? []).compactMap { $0["title"]?.string }
    }

    @Test("a resume message brings the changes since a version, and everything for an unknown one")
    func resume() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            for number in 1...3 { try await stack.notify("ada", "n\(number)") }
            try await eventually("all come") { socket.titles == ["n1", "n2", "n3"] }

            try await socket.send(json: #"{"type":"resume","version":1}"#)
            let changes = try await eventualValue("the changes arrive") { socket.all("sync").dropFirst().first }
            #expect(changes["version"]?.integer == 3)
            #expect(changes["reset"]?.bool == false)
            #expect(Self.titles(changes) == ["n2", "n3"])

            try await socket.send(json: #"{"type":"resume","version":99}"#)
            let everything = try await eventualValue("everything comes") { socket.all("sync").dropFirst(2).first }
            #expect(everything["version"]?.integer == 3)
            #expect(everything["reset"]?.bool == true)
            #expect(Self.titles(everything).sorted() == ["n1", "n2", "n3"])

            try await socket.send(json: #"{"type":"resume","version":-1,"ref":"r"}"#)
            let fault = try await socket.first("error")
            #expect(fault["reason"]?.string == "version must be a whole number from 0")
            #expect(fault["ref"]?.string == "r")
            try await stack.notify("ada", "n4")
            try await eventually("it goes on") { socket.titles == ["n1", "n2", "n3", "n4"] }
        }
    }

    @Test("a client that missed more bytes than may wait for a slow reader starts over")
    func resumesTooMuch() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let data = #"{"x": "\#(String(repeating: "x", count: 15_000))"}"#
            for number in 1...40 {
                try await stack.append([
                    ("user", "ada"), ("type", "invoice_created"), ("title", "n\(number)"), ("data", data),
                ])
            }
            try await eventually("all are stored") { try await stack.statuses(user: "ada").count == 40 }
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await socket.send(json: #"{"type":"resume","version":0}"#)
            let sync = try await eventualValue("the answer comes") { socket.all("sync").dropFirst().first }
            #expect(sync["reset"]?.bool == true)
            #expect(sync["has_more"]?.bool == true)
            #expect((1..<20).contains(Self.titles(sync).count))
            try await socket.send(json: #"{"type":"resume","version":20}"#)
            let rest = try await eventualValue("the rest comes") { socket.all("sync").dropFirst(2).first }
            #expect(rest["reset"]?.bool == false)
            #expect(Self.titles(rest).count == 20)
        }
    }

    @Test("the first notification of a new user comes as one, also after an epoch began")
    func first() async throws {
        try await Stack.with { stack in
            try await stack.query("SELECT carillon.begin_epoch()")
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.notify("ada", "n1")
            try await eventually("it comes") { socket.titles == ["n1"] }
            #expect(socket.all("sync").allSatisfy { $0["reset"]?.bool == false })
        }
    }

    @Test("an ack confirms notifications by id when no ping is answered")
    func acknowledge() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(
                port: gateway.port, user: "ada", behaviour: TestSocket.Behaviour(answersPings: false))
            for title in ["named", "unnamed"] { try await stack.notify("ada", title) }
            try await eventually("both come, and a ping asks for confirmation") {
                socket.titles == ["named", "unnamed"] && socket.pings > 0
            }
            #expect(try await stack.statuses(user: "ada").values.contains("delivered") == false)
            let id = try #require(socket.notifications.first?["id"]?.string)
            try await socket.send(json: #"{"type":"ack","ids":["\#(id)"],"ref":1}"#)
            #expect(try await socket.first("done")["ref"]?.integer == 1)
            try await eventually("it is delivered") { try await stack.statuses(user: "ada")["named"] == "delivered" }
            #expect(try await stack.statuses(user: "ada")["unnamed"] != "delivered")
        }
    }

    @Test(
        "every message of the gateway matches docs/asyncapi.yaml",
        .enabled(if: PythonClient.has("jsonschema_rs") && PythonClient.has("yaml")))
    func described() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.notify("ada", "plain")
            try await stack.notify(
                "ada", "full",
                [
                    ("body", "b"), ("data", #"{"a":[1]}"#), ("org", "acme"), ("entity_type", "invoice"),
                    ("entity_id", "9"), ("url", "/invoices/9"), ("image", "https://example.com/i.png"),
                    ("collapse_key", "k"), ("expires_at", "2099-01-01T00:00:00Z"),
                ])
            try await stack.append([("user", "ada"), ("event", "typing"), ("args", #"[{"user":"ben"}]"#)])
            try await eventually("all come") { socket.titles == ["plain", "full"] && !socket.all("event").isEmpty }
            let id = try #require(socket.notifications.first?["id"]?.string)
            // Alone, because the answer to `resume` may contain this change in place of its frame.
            try await socket.send(json: #"{"type":"read","ids":["\#(id)"],"ref":1}"#)
            try await eventually("it is read") { !socket.all("read").isEmpty }
            for message in [
                #"{"type":"focus","active":true,"ref":[2]}"#, #"{"type":"resume","version":1,"ref":"3"}"#,
                #"{"type":"x"}"#,
            ] { try await socket.send(json: message) }
            try await eventually("the resume is answered") { socket.all("sync").contains { $0["ref"] != nil } }
            let token = Stack.token(user: "ada")
            for (method, path) in [(.post, "\(id)/unread"), (.delete, id)] as [(TransferRequest.Method, String)] {
                #expect(try await gateway.call(method, "/v1/notifications/\(path)", token: token).status < 300)
            }
            try await eventually("all are answered") {
                ["unread", "done", "error", "deleted"].allSatisfy { !socket.all($0).isEmpty }
            }
            gateway.process.send(SIGTERM)
            #expect(try await socket.waitForClose() == 1012)

            let frames = stack.directory.file("frames")
            try Data(socket.texts.joined(separator: "\n").utf8).write(to: URL(filePath: frames))
            let document = Stack.checkout.appending(path: "docs/asyncapi.yaml").path
            let checker = try await PythonClient.start(
                "asyncapi_frames.py", [document, frames], in: stack.directory.path)
            let exit = try await checker.process.waitForExit()
            #expect(exit == .code(0), "\(checker.lines)\(checker.process.errors())")
            let types = "deleted done error event goodbye notification read sync unread welcome"
            #expect(checker.lines.joined(separator: " ") == types)
        }
    }

    @Test("an open socket accepts a fresh token and refuses another user's or a bad one without closing")
    func refresh() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let prolonged = try await TestSocket.synced(port: gateway.port, user: "ada")
            let stubborn = try await TestSocket.synced(port: gateway.port, user: "ada")

            let fresh = Stack.token(user: "ada")
            try await prolonged.send(json: #"{"type":"auth","token":"\#(fresh)","ref":1}"#)
            #expect(try await prolonged.first("done")["ref"]?.integer == 1)
            let eve = Stack.token(user: "eve")
            try await stubborn.send(json: #"{"type":"auth","token":"\#(eve)","ref":2}"#)
            try await stubborn.send(json: #"{"type":"auth","token":"x.y.z","ref":3}"#)
            try await eventually("both are refused") { stubborn.all("error").count == 2 }
            func reason(_ reference: Int64) -> String? {
                stubborn.all("error").first { $0["ref"]?.integer == reference }?["reason"]?.string
            }
            #expect(reason(2) == "the token belongs to another user")
            #expect(reason(3)?.isEmpty == false)

            try await prolonged.send(json: #"{"type":"unread","ref":4}"#)
            #expect(try await prolonged.first("unread")["ref"]?.integer == 4)
            #expect(prolonged.closeCode == nil)
        }
    }
}
