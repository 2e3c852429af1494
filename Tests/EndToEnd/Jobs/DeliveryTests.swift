// Carillon · DeliveryTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Sandbox
import Support
import Testing

@testable import Storage

/// The main path: from XADD to a socket or a phone.
@Suite(.timeLimit(.minutes(10)))
struct DeliveryTests {
    @Test("an online user gets the frame, and the pong marks it delivered")
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
            try await eventually("nothing is unconfirmed") { try await stack.proofDeadlines().isEmpty }
            let isLate = try await stack.hasLateProof()
            #expect(stack.pushed().isEmpty || isLate)
            #expect(try await dispatcher.stop() == .code(0))
            #expect(try await gateway.process.stop() == .code(0))
        }
    }

    @Test("an offline user's devices get pushes through FCM and APNs, and each failure has its status")
    func offline() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let apnsToken = String(repeating: "ab", count: 32)
            try await gateway.register(user: "fcm", platform: "android", token: "phone-1")
            try await gateway.register(user: "apns", platform: "ios", token: apnsToken)
            try await gateway.register(user: "gone", platform: "android", token: "unregistered-1")
            try await gateway.register(user: "flaky", platform: "android", token: "unavailable-once-1")
            try await gateway.register(user: "cut", platform: "android", token: "cut-once-1")
            for user in ["fcm", "apns", "gone", "flaky", "nobody"] {
                try await stack.append([("user", user), ("type", "payment_received"), ("title", "For \(user)")])
            }
            try await eventually("every reachable phone has it") {
                let pushed = stack.pushed()
                return pushed["phone-1"] == ["For fcm"] && pushed[apnsToken] == ["For apns"]
                    && pushed["unavailable-once-1"] == ["For flaky"]
            }
            // Last, because a cut ends every call on the connection.
            try await stack.append([("user", "cut"), ("type", "payment_received"), ("title", "For cut")])
            try await eventually("the cut-off push is sent again") {
                stack.pushed()["cut-once-1"] == ["For cut"]
            }
            try await eventually("each has its status") {
                var statuses: [String: String] = [:]
                for user in ["fcm", "apns", "gone", "flaky", "cut", "nobody"] {
                    statuses[user] = try await stack.statuses(user: user)["For \(user)"]
                }
                return statuses == [
                    "fcm": "sent", "apns": "sent", "gone": "failed", "flaky": "sent", "cut": "sent", "nobody": "sent",
                ]
            }
            let devices = try await gateway.call(.get, "/v1/devices", token: Stack.token(user: "gone"))
            #expect(devices.body["devices"]?.array?.first?["active"]?.bool == false)
            #expect(devices.body["devices"]?.array?.first?["deactivated_reason"]?.string == "UNREGISTERED")
        }
    }

    @Test("pushes when the client does not answer a ping within five seconds")
    func silentClient() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "mute", platform: "android", token: "mute-phone")
            let socket = try await TestSocket.synced(
                port: gateway.port,
                user: "mute",
                behaviour: TestSocket.Behaviour(answersPings: false)
            )
            let start = Schedules.now()
            try await stack.append([("user", "mute"), ("type", "payment_received"), ("title", "Urgent")])
            let deadline = try await eventualValue("the frame has a deadline") {
                try await stack.proofDeadlines().first
            }
            // The dispatcher's clock follows PostgreSQL's, exact to half a second.
            #expect(deadline - start >= .milliseconds(4_500))
            #expect(deadline - Schedules.now() <= .milliseconds(5_500))
            try await eventually("the frame is there") { socket.titles == ["Urgent"] }
            try await eventually("the push is out") { stack.pushed()["mute-phone"] == ["Urgent"] }
            let push = try #require(stack.sandbox.received().first)
            #expect(push.at.timeIntervalSince1970 > Double(deadline.milliseconds) / 1_000 - 0.5)
        }
    }

    @Test("a notification read before its proof is due is not pushed")
    func readWithoutProof() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let token = Stack.token(user: "mute")
            try await gateway.register(user: "mute", platform: "android", token: "mute-phone")
            let socket = try await TestSocket.synced(
                port: gateway.port,
                user: "mute",
                behaviour: TestSocket.Behaviour(answersPings: false)
            )
            for (count, title) in [(1, "Read"), (2, "Unread")] {
                try await stack.append([("user", "mute"), ("type", "payment_received"), ("title", title)])
                try await eventually("its proof is missing") { try await stack.proofDeadlines().count == count }
                try await stack.setProofDeadlines(to: Schedules.now() + .seconds(3_600))
            }
            try await eventually("the frames are there") { socket.titles == ["Read", "Unread"] }
            let id = try #require(socket.notifications.first?["id"]?.string)
            let answer = try await gateway.call(.post, "/v1/notifications/\(id)/read", token: token)
            #expect(answer.status < 300)
            try await stack.setProofDeadlines(to: Schedules.now())
            try await eventually("the unread one is pushed when its proof is overdue") {
                stack.pushed()["mute-phone"]?.contains("Unread") == true
            }
            try await eventually("no proof is missing any more") { try await stack.proofDeadlines().isEmpty }
            try await stack.waitForPushes()
            #expect(stack.pushed() == ["mute-phone": ["Unread"]])
        }
    }

    @Test("a repeated job id notifies once, in one batch or two")
    func idempotency() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            for title in ["first", "first", "first"] {
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

    @Test("reading on one socket updates the others, and a resume sends only changes")
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
            let id = try #require(here.notifications.first?["id"]?.string)
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
            try await back.send(json: #"{"type":"resume","version":3,"ref":"none"}"#)
            try await back.send(json: #"{"type":"resume","version":2,"ref":"one"}"#)
            for (reference, count) in [("none", 0), ("one", 1)] {
                let answer = try await eventualValue("a resume is answered") {
                    back.all("sync").first { $0["ref"]?.string == reference }
                }
                #expect(answer["version"]?.integer == 3 && answer["reset"]?.bool == false)
                #expect(answer["notifications"]?.array?.count == count)
            }
            let fresh = try await TestSocket.synced(port: one.port, user: "ada", query: "?resume=99")
            #expect(try await fresh.first("sync")["reset"]?.bool == true)
        }
    }

    @Test("a delivery that was appended twice is sent once")
    func duplicateDelivery() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "offline", platform: "android", token: "unavailable-once-phone")
            try await stack.append([
                ("user", "offline"), ("type", "payment_received"), ("title", "Paid"), ("lane", "normal"),
            ])
            // Appends the retry twice, as a writer does that got no answer.
            let keys = Keyspace()
            let script = """
                local due = redis.call('ZPOPMIN', KEYS[1])
                if #due == 0 then return 0 end
                for _ = 1, 2 do redis.call('XADD', KEYS[2], '*', 'd', due[1]) end
                return 1
                """
            try await eventually("the first attempt has failed") {
                try await stack.connection.send(
                    "EVAL", .text(script), "2", .text(keys.retries(.fcm, .normal)),
                    .text(keys.deliveries(.fcm, .normal))
                ).integer() == 1
            }
            // A busy machine may need more than one retry.
            let ends = try await eventualValue("both entries are settled") {
                try await stack.makeDue(.fcm)
                let ends = try await stack.query(
                    "SELECT outcome FROM carillon.delivery_attempts WHERE kind = 'push' AND outcome <> 'retry'")
                let outcomes = try ends.map { try $0.text(0) }.sorted()
                return Set(outcomes) == ["accepted", "skipped"] ? outcomes : nil
            }
            #expect(ends.filter { $0 == "accepted" }.count == 1)
            #expect(stack.pushed() == ["unavailable-once-phone": ["Paid"]])
        }
    }

    @Test("a hundred sockets that resume at once each get exactly what they missed")
    func manyResume() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let users = (0..<100).map { "user-\($0)" }
            // Out of four users, one has all three, one none, one lacks the last, and one never
            // connected.
            let versions: [Int64?] = [3, 0, 2, nil]
            for number in 1...3 {
                try await stack.append([
                    ("users", String(decoding: JSONWriter.bytes(of: .array(users.map { .string($0) })), as: UTF8.self)),
                    ("type", "invoice_created"), ("title", "job \(number)"),
                ])
            }
            try await eventually("all are stored") {
                try await stack.query("SELECT 1 FROM carillon.inboxes WHERE version = 3").count == users.count
            }
            let sockets = try await withThrowingTaskGroup(of: (Int, TestSocket).self) { group in
                for (index, user) in users.enumerated() {
                    let query = versions[index % 4].map { "?resume=\($0)" } ?? ""
                    group.addTask {
                        (index, try await TestSocket.synced(port: gateway.port, user: user, query: query))
                    }
                }
                return try await group.reduce(into: [Int: TestSocket]()) { $0[$1.0] = $1.1 }
            }
            for index in users.indices {
                let sync = try await #require(sockets[index]).first("sync")
                let titles = (sync["notifications"]?.array ?? []).compactMap { $0["title"]?.string }
                let expected = [[], ["job 1", "job 2", "job 3"], ["job 3"], ["job 3", "job 2", "job 1"]][index % 4]
                #expect(titles == expected, "\(users[index])")
                #expect(sync["version"]?.integer == 3)
                #expect(sync["reset"]?.bool == false)
                #expect(sync["unread"]?.integer == 3)
            }
            let ahead = try await TestSocket.synced(port: gateway.port, user: users[0], query: "?resume=99")
            #expect(try await ahead.first("sync")["reset"]?.bool == true)
        }
    }
}
