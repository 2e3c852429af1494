// Carillon · DeliveryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Fixtures
import JSON
import Model
import Redis
import Testing
import Transfer

/// The main job: from XADD to a socket or a phone.
@Suite(.serialized, .timeLimit(.minutes(3)))
struct DeliveryTests {
    @Test("an online user gets the frame, and the pong makes it delivered")
    func online() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([
                ("user", "ada"), ("type", "payment_received"), ("title", "Paid"), ("data", #"{"invoice":"i9"}"#),
            ])
            let frame = try await socket.first("notification")
            #expect(frame["version"]?.integer == 1)
            #expect(frame["unread"]?.integer == 1)
            #expect(frame["notification"]?["title"]?.string == "Paid")
            #expect(frame["notification"]?["data"]?["invoice"]?.string == "i9")
            try await eventually("it counts as delivered") {
                try await stack.statuses(user: "ada") == ["Paid": "delivered"]
            }
            try await eventually("nothing waits for a proof") {
                for shard in 0..<16 {
                    let count = try await stack.connection.send("ZCARD", .text("carillon:unconfirmed:{\(shard)}"))
                    if try count.integer() > 0 { return false }
                }
                return true
            }
            #expect(stack.pushed().isEmpty)
            #expect(try await dispatcher.stop() == .code(0))
            #expect(try await gateway.process.stop() == .code(0))
        }
    }

    @Test("an offline user's devices get a push, through FCM and APNs; faults are told apart")
    func offline() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let apnsToken = String(repeating: "ab", count: 32)
            try await gateway.register(user: "fcm", platform: "android", token: "phone-1")
            try await gateway.register(user: "apns", platform: "ios", token: apnsToken)
            try await gateway.register(user: "gone", platform: "android", token: "unregistered-1")
            try await gateway.register(user: "flaky", platform: "android", token: "unavailable-once-1")
            try await gateway.register(user: "cut", platform: "android", token: "cut-once-1")
            for user in ["fcm", "apns", "gone", "flaky", "nobody"] {
                try await stack.append([("user", user), ("type", "payment_received"), ("title", "For \(user)")])
            }
            try await eventually("every phone that can be reached has it", within: .seconds(30)) {
                let pushed = stack.pushed()
                return pushed["phone-1"] == ["For fcm"] && pushed[apnsToken] == ["For apns"]
                    && pushed["unavailable-once-1"] == ["For flaky"]
            }
            // Last, since a cut takes with it whatever else is under way on the connection.
            try await stack.append([("user", "cut"), ("type", "payment_received"), ("title", "For cut")])
            try await eventually("what was cut off is sent again", within: .seconds(30)) {
                stack.pushed()["cut-once-1"] == ["For cut"]
            }
            try await eventually("each one's status says how it went") {
                var statuses: [String: String] = [:]
                for user in ["fcm", "apns", "gone", "flaky", "cut", "nobody"] {
                    statuses[user] = try await stack.statuses(user: user)["For \(user)"]
                }
                return statuses == [
                    "fcm": "sent", "apns": "sent", "gone": "failed", "flaky": "sent", "cut": "sent", "nobody": "sent",
                ]
            }
            let devices = try await gateway.call(.get, "/v1/devices", token: try await Stack.token(user: "gone"))
            #expect(devices.body["devices"]?.array?.first?["active"]?.bool == false)
            #expect(devices.body["devices"]?.array?.first?["deactivated_reason"]?.string == "UNREGISTERED")
        }
    }

    @Test("a client that holds its connection and no longer answers gets its push within six seconds")
    func silentClient() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            try await gateway.register(user: "mute", platform: "android", token: "mute-phone")
            let socket = try await TestSocket.synced(
                port: gateway.port,
                user: "mute",
                behaviour: TestSocket.Behaviour(answersPings: false)
            )
            let start = ContinuousClock.now
            try await stack.append([("user", "mute"), ("type", "payment_received"), ("title", "Urgent")])
            _ = try await socket.first("notification")
            #expect(stack.pushed().isEmpty)
            try await eventually("the push is out", within: .seconds(15)) { stack.pushed()["mute-phone"] == ["Urgent"] }
            #expect(ContinuousClock.now - start < .seconds(6.5))
        }
    }

    @Test("the same job id notifies once, in one batch and in two")
    func idempotency() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            for title in ["first", "second", "third"] {
                try await stack.append([
                    ("user", "ada"), ("type", "invoice_created"), ("title", title), ("id", "order-1"),
                ])
            }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "last")])
            try await eventually("the last one came") { socket.titles.contains("last") }
            #expect(socket.titles == ["first", "last"])
            #expect(try await stack.statuses(user: "ada").count == 2)
        }
    }

    @Test("read on one socket reaches the others, and a resume brings only what changed")
    func readAndResume() async throws {
        try await Stack.with { stack in
            let one = try await stack.startGateway(name: "gateway-1")
            let two = try await stack.startGateway(name: "gateway-2")
            _ = try await stack.startDispatcher()
            let here = try await TestSocket.synced(port: one.port, user: "ada")
            let there = try await TestSocket.synced(port: two.port, user: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "A")])
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "B")])
            try await eventually("both sockets have both") { here.titles == ["A", "B"] && there.titles == ["A", "B"] }
            let id = try #require(here.all("notification").first?["notification"]?["id"]?.string)
            await there.close()
            try await here.send(json: #"{"type":"read","ids":["\#(id)"],"ref":7}"#)
            let answer = try await here.first("unread")
            #expect(answer["unread"]?.integer == 1)
            #expect(answer["ref"]?.integer == 7)
            #expect(try await here.first("read")["version"]?.integer == 3)

            let back = try await TestSocket.synced(port: two.port, user: "ada", query: "?resume=2")
            let sync = try await back.first("sync")
            #expect(sync["version"]?.integer == 3)
            #expect(sync["reset"]?.bool == false)
            #expect(sync["notifications"]?.array?.count == 1)
            #expect(sync["notifications"]?.array?.first?["id"]?.string == id)
            #expect(sync["notifications"]?.array?.first?["read_at"]?.string != nil)
            let fresh = try await TestSocket.synced(port: one.port, user: "ada", query: "?resume=99")
            #expect(try await fresh.first("sync")["reset"]?.bool == true)
        }
    }
}
