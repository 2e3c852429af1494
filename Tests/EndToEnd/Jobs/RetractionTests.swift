// Carillon · RetractionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import HTTP
import Sandbox
import Support
import Testing

/// Reading on one device removes the notification from the others' screens.
@Suite(.timeLimit(.minutes(10)))
struct RetractionTests {
    /// A catalog with a type that is removed on read, and one that is not.
    private static func catalog(_ stack: Stack) throws -> String {
        let catalog = stack.directory.path + "/catalog.yaml"
        try """
        types:
          sticky: {delivery: push, channels: [in_app, push], retract_on_read: true}
          plain: {delivery: push, channels: [in_app, push]}
        """.write(toFile: catalog, atomically: true, encoding: .utf8)
        return catalog
    }

    private static func readAll(_ gateway: Gateway) async throws {
        let token = Stack.token(user: "ada")
        let answer = try await gateway.call(.post, "/v1/notifications/read", token: token, json: #"{"all":true}"#)
        #expect(answer.status == 200)
    }

    /// The messages that take a notification away, with its id.
    private static func retractions(_ stack: Stack) throws -> [(id: String, message: ReceivedMessage)] {
        try stack.sandbox.received().compactMap { message in
            let payload = try JSONParser.parse(message.payload)
            let id = (payload["retract"] ?? payload["message"]?["data"]?["retract"])?.string
            return id.map { (id: $0, message: message) }
        }
    }

    @Test("a notification read on one device is removed from the others if its type asks for it")
    func retraction() async throws {
        try await Stack.with { stack in
            let catalog = try Self.catalog(stack)
            let gateway = try await stack.startGateway(environment: ["CATALOG": catalog])
            let phone = String(repeating: "ab", count: 32)
            try await gateway.register(user: "ada", platform: "ios", token: phone, name: "ios")
            try await gateway.register(user: "ada", platform: "android", token: "robot", name: "android")
            _ = try await stack.startDispatcher(environment: ["CATALOG": catalog])
            for type in ["sticky", "plain"] {
                try await stack.append([("user", "ada"), ("type", type), ("title", type)])
            }
            try await eventually("both have both") {
                [phone, "robot"].allSatisfy { Set(stack.pushed()[$0] ?? []).count == 2 }
            }
            try await eventually("all are recorded") {
                try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'accepted'").count == 4
            }
            try await Self.readAll(gateway)
            try await eventually("both devices take it away") {
                Set(try Self.retractions(stack).map(\.message.token)) == [phone, "robot"]
            }
            let id = try await stack.query("SELECT id::text FROM carillon.notifications WHERE title = 'sticky'").first?
                .text(0)
            for retraction in try Self.retractions(stack) {
                #expect(retraction.id == id)
                let payload = try JSONParser.parse(retraction.message.payload)
                #expect(payload["aps"]?["alert"] == nil && payload["message"]?["notification"] == nil)
            }
            let statuses = try await stack.statuses(user: "ada")
            #expect(statuses == ["sticky": "sent", "plain": "sent"])
        }
    }

    @Test("a notification that was read and then replaced is not removed")
    func retractionOfReplaced() async throws {
        try await Stack.with { stack in
            let catalog = try Self.catalog(stack)
            let gateway = try await stack.startGateway(environment: ["CATALOG": catalog])
            try await gateway.register(user: "ada", platform: "android", token: "robot", name: "android")
            let first = try await stack.startDispatcher(environment: ["CATALOG": catalog])
            try await stack.append([("user", "ada"), ("type", "sticky"), ("title", "t"), ("collapse_key", "k")])
            try await eventually("the attempt is recorded") {
                try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'accepted'").count == 1
            }
            // While no dispatcher runs, it is read and then replaced.
            #expect(try await first.stop() == .code(0))
            try await Self.readAll(gateway)
            _ = try await stack.query(
                "UPDATE carillon.notifications SET deleted_at = now(), replaced_by = gen_random_uuid()")
            _ = try await stack.startDispatcher(name: "second", environment: ["CATALOG": catalog])
            try await eventually("the gate refuses it") {
                try await stack.query(
                    """
                    SELECT 1 FROM carillon.delivery_attempts
                    WHERE kind = 'retract' AND outcome = 'skipped' AND reason = 'replaced'
                    """
                ).count >= 1
            }
            #expect(try Self.retractions(stack).isEmpty)
        }
    }

    @Test("a provider with too many deliveries takes no retractions, which are counted")
    func fullStream() async throws {
        try await Stack.with { stack in
            let catalog = try Self.catalog(stack)
            let gateway = try await stack.startGateway(environment: ["CATALOG": catalog])
            try await gateway.register(user: "ada", platform: "android", token: "robot", name: "android")
            let dispatcher = try await stack.startDispatcher(environment: ["CATALOG": catalog])
            try await stack.append([("user", "ada"), ("type", "sticky"), ("title", "t")])
            try await eventually("the attempt is recorded") {
                try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'accepted'").count == 1
            }
            #expect(try await dispatcher.stop() == .code(0))
            let stream: RedisArgument = "carillon:{fcm}:deliveries:bulk"
            // In parts, because a script holds up the server.
            for _ in 0..<10 {
                let fill = "for n = 1, 100000 do redis.call('XADD', KEYS[1], '*', 'a', 'b') end"
                try await stack.connection.send("EVAL", .text(fill), "1", stream)
            }
            try await Self.readAll(gateway)
            #expect(try await stack.connection.send("XLEN", stream).integer() == 1_000_000)
            let metrics = try await gateway.call(.get, "/metrics", token: nil).response.body
            #expect(String(decoding: metrics, as: UTF8.self).contains("\ncarillon_retractions_omitted 1\n"))
        }
    }

    @Test("when many notifications are read at once, the newest are removed and the rest is counted")
    func manyRetractions() async throws {
        try await Stack.with { stack in
            let catalog = try Self.catalog(stack)
            let gateway = try await stack.startGateway(environment: ["CATALOG": catalog])
            try await gateway.register(user: "ada", platform: "android", token: "robot", name: "android")
            _ = try await stack.startDispatcher(environment: ["CATALOG": catalog])
            for number in 0..<30 {
                try await stack.append([("user", "ada"), ("type", "sticky"), ("title", "\(number)")])
            }
            try await eventually("all are recorded") {
                try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'accepted'").count
                    == 30
            }
            try await Self.readAll(gateway)
            try await eventually("a burst is taken away") {
                Set(try Self.retractions(stack).map(\.id)).count == 20
            }
            let retractions = try Self.retractions(stack)
            for (id, message) in retractions {
                let data = try JSONParser.parse(message.payload)["message"]?["data"]
                #expect(data?["notification_id"]?.string == id)
            }
            let newest = try await stack.query(
                "SELECT id::text FROM carillon.notifications ORDER BY id DESC LIMIT 20"
            ).map { try $0.text(0) }
            #expect(Set(retractions.map(\.id)) == Set(newest))
            let metrics = try await gateway.call(.get, "/metrics", token: nil).response.body
            #expect(String(decoding: metrics, as: UTF8.self).contains("\ncarillon_retractions_omitted 10\n"))
        }
    }
}
