// Carillon · StreamTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

@testable import HTTP

/// Server-Sent Events: the event id is the inbox version, so a client resumes without loss or
/// repetition.
@Suite(.timeLimit(.minutes(10)))
struct StreamTests {
    @Test("a stream begins with a sync, continues with changes and resumes from the last event id")
    func streams() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let stream = try await TestStream.open(port: gateway.port, user: "ada")
            let sync = try await stream.first("sync")
            #expect(stream.status == 200)
            #expect(sync.id == "0")
            for number in 1...3 {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "n\(number)")])
            }
            try await eventually("all come in order") { stream.titles == ["n1", "n2", "n3"] }
            let last = stream.events.last { $0.name == "notification" }?.id
            #expect(last == "3")
            await stream.close()

            for number in 4...5 {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "n\(number)")])
            }
            try await eventually("they are stored") { try await stack.statuses(user: "ada").count == 5 }
            let resumed = try await TestStream.open(port: gateway.port, user: "ada", lastEventID: last)
            let missed = try JSONParser.parse(Array(try await resumed.first("sync").data.utf8))
            let titles = (missed["notifications"]?.array ?? []).compactMap { $0["title"]?.string }
            #expect(titles == ["n4", "n5"])
            #expect(missed["reset"]?.bool == false)
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "n6")])
            try await eventually("the stream goes on") { resumed.titles == ["n6"] }

            #expect(try await gateway.process.stop() == .code(0))
            try await eventually("the goodbye arrives") { resumed.events.contains { $0.name == "goodbye" } }
        }
    }

    @Test("reads and deletions elsewhere arrive as events")
    func changes() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let stream = try await TestStream.open(port: gateway.port, user: "ada")
            _ = try await stream.first("sync")
            for title in ["kept", "gone"] {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
            }
            try await eventually("both come") { stream.titles == ["kept", "gone"] }
            let ids = try stream.events.filter { $0.name == "notification" }.map { event in
                try #require(try JSONParser.parse(Array(event.data.utf8))["notification"]?["id"]?.string)
            }
            let token = Stack.token(user: "ada")
            let path = "/v1/notifications/\(ids[0])/read"
            #expect(try await gateway.call(.post, path, token: token).status < 300)
            let read = try await stream.first("read")
            #expect(read.id == "3")
            let change = try JSONParser.parse(Array(read.data.utf8))
            #expect(change["type"]?.string == "read")
            #expect(change["version"]?.integer == 3)
            #expect(change["unread"]?.integer == 1)
            #expect(change["change"]?["ids"]?.strings == [ids[0]])

            let other = "/v1/notifications/\(ids[1])"
            #expect(try await gateway.call(.delete, other, token: token).status < 300)
            let deleted = try await stream.first("deleted")
            #expect(deleted.id == "4")
            let deletion = try JSONParser.parse(Array(deleted.data.utf8))
            #expect(deletion["unread"]?.integer == 0)
            #expect(deletion["change"]?["ids"]?.strings == [ids[1]])
        }
    }

    /// Title, status, reason and channel of a user's notifications.
    private static func outcomes(_ stack: Stack, _ user: String) async throws -> [[String?]] {
        let rows = try await stack.query(
            """
            SELECT title, status, status_reason, sent_via FROM carillon.notifications WHERE user_id = $1 ORDER BY title
            """, .text(user))
        return try rows.map { row in try (0..<4).map { try row.optionalText($0) } }
    }

    @Test("unacknowledged notifications of a stream are settled, so the sweep does not push them again")
    func unacknowledged() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let environment = try stack.catalog(
                """
                types:
                  hint: {severity: info, delivery: in_app}
                  offer: {severity: info, delivery: push, cap: {count: 1, per: 1h}}
                """
            )
            let gateway = try await stack.startBoth(environment: environment)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let stream = try await TestStream.open(port: gateway.port, user: "ada")
            _ = try await stream.first("sync")
            for (type, title) in [("hint", "1 hint"), ("offer", "2 within"), ("offer", "3 over")] {
                try await stack.append([("user", "ada"), ("type", type), ("title", title)])
                try await eventually("the stream has it") { stream.titles.last == title }
            }
            let expected: [[String?]] = [
                ["1 hint", "sent", "unproven", "socket"], ["2 within", "sent", nil, "fcm"],
                ["3 over", "sent", "capped_by_type", "socket"],
            ]
            try await eventually("all are settled, and the one within the cap was pushed") {
                try await Self.outcomes(stack, "ada") == expected
            }
            await stream.close()
            try await eventually("the user is offline") {
                try await stack.connection.send("EXISTS", "carillon:presence:{ada}").integer() == 0
            }
            // Makes room under the cap again.
            #expect(try await stack.connection.send("DEL", "carillon:used:{ada}:type:offer").integer() == 1)
            try await stack.makeOlder()
            try await stack.waitForSweep()
            try await stack.waitForPushes()
            #expect(stack.pushed() == ["ada-phone": ["2 within"]])
            #expect(try await Self.outcomes(stack, "ada") == expected)
        }
    }

    @Test("unconfirmed notifications can be cancelled, and a late receipt marks them delivered")
    func receipts() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let stream = try await TestStream.open(port: gateway.port, user: "ada")
            _ = try await stream.first("sync")
            for job in ["acknowledged", "withdrawn"] {
                try await stack.append([
                    ("user", "ada"), ("type", "invoice_created"), ("title", job), ("id", job), ("delivery", "in_app"),
                ])
            }
            try await eventually("both are settled") {
                try await stack.statuses(user: "ada") == ["acknowledged": "sent", "withdrawn": "sent"]
            }
            let event = try JSONParser.parse(Array(try await stream.first("notification").data.utf8))
            let id = try #require(event["notification"]?["id"]?.string)
            let token = Stack.token(user: "ada")
            #expect(try await gateway.call(.post, "/v1/notifications/\(id)/delivered", token: token).status < 300)
            let service = Stack.token(user: "app", scope: .service)
            #expect(try await gateway.call(.delete, "/v1/jobs/withdrawn", token: service).status == 200)
            try await eventually("each has its status") {
                try await stack.statuses(user: "ada") == ["acknowledged": "delivered", "withdrawn": "cancelled"]
            }
            _ = try await stream.first("deleted")
        }
    }

    @Test("a stream whose token expires says so and ends")
    func expiry() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let stream = try await Stack.withExpiringToken(user: "ada") { token in
                let stream = try await TestStream.open(port: gateway.port, user: "ada", token: token)
                try await eventually("it is answered") { stream.status != nil }
                return stream.status == 200 ? stream : nil
            }
            let goodbye = try JSONParser.parse(Array(try await stream.first("goodbye").data.utf8))
            #expect(goodbye["code"]?.integer == 4401)
            #expect(goodbye["reason"]?.string == "the token has expired")
            try await eventually("it is over") { stream.isOver }
        }
    }

    @Test("requests that open no stream are refused with a reason, and the connection stays usable")
    func refusals() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            #expect(try await gateway.call(.get, "/v1/stream", token: nil).status == 401)
            #expect(try await gateway.call(.get, "/v1/stream", token: "x.y.z").status == 401)
            #expect(try await gateway.call(.get, "/v1/stream?ticket=unknown", token: nil).status == 401)
            let wrong = try await gateway.call(.get, "/v1/stream?last_event_id=no", token: token)
            #expect(wrong.status == 400)
            #expect(wrong.body["detail"]?.string == "last_event_id: must be a whole number from 0")
            #expect(try await gateway.call(.post, "/v1/stream", token: token).status == 405)
            #expect(try await gateway.call(.get, "/v1/notifications", token: token).status == 200)
        }
    }
}
