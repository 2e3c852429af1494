// Carillon · SignalRReconnectTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import Support
import Testing

/// Stateful reconnect: a connection resumes on another WebSocket without loss or repetition.
@Suite(.timeLimit(.minutes(10)))
struct SignalRReconnectTests {
    private static let ask = "?negotiateVersion=1&useStatefulReconnect=true"

    private static func open(_ gateway: Gateway, id: String, user: String = "ada") async throws -> TestSocket {
        let socket = try await TestSocket.open(
            port: gateway.port,
            token: Stack.token(user: user),
            query: "?id=\(id)",
            path: TestSignalR.path
        )
        try await eventually("an answer comes") { socket.status != nil }
        return socket
    }

    /// Negotiates and opens a connection; repeats both if a stall lets the id expire.
    private static func start(_ gateway: Gateway) async throws -> (id: String, socket: TestSocket) {
        try await eventualValue("a connection is open") {
            let id = try await TestSignalR.negotiate(gateway, user: "ada", query: Self.ask)
            let socket = try await Self.open(gateway, id: id)
            return socket.status == 101 ? (id: id, socket: socket) : nil
        }
    }

    @Test("messages of an interrupted connection are resent when it resumes, on any event loop", arguments: 1...4)
    func returns(_ round: Int) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let (id, first) = try await Self.start(gateway)
            try await first.send(opcode: 1, payload: TestSignalR.record(#"{"protocol":"json","version":2}"#))
            try await eventually("the count comes") { first.messages.counts == [0] }
            // Other connections, so that some rounds resume on another event loop.
            var others: [TestSocket] = []
            for _ in 0..<round { others.append(try await TestSocket.connect(port: gateway.port)) }
            await first.close()
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "n1")])
            try await eventually("it is stored") { try await stack.statuses(user: "ada").count == 1 }

            let second = try await Self.open(gateway, id: id)
            #expect(second.status == 101)
            try await second.send(opcode: 1, payload: TestSignalR.record(#"{"type":9,"sequenceId":1}"#))
            try await eventually("it comes") { second.messages.receivedTitles == ["n1"] }
            // Nothing was acknowledged, so everything is resent from the first message.
            let sequence = second.messages.first
            #expect(sequence?["type"]?.integer == 9)
            #expect(sequence?["sequenceId"]?.integer == 1)
            #expect(second.messages.counts == [0, 1])
            try await eventually("it is confirmed") { try await stack.statuses(user: "ada") == ["n1": "delivered"] }
            try await second.send(opcode: 1, payload: TestSignalR.call("GetUnreadCount", id: "1"))
            try await eventually("calls are answered") { second.messages.completion("1")?["result"]?.integer == 1 }

            // A client that returns before the loss was noticed replaces the old socket.
            try await second.send(opcode: 1, payload: TestSignalR.record(#"{"type":8,"sequenceId":4}"#))
            try await second.send(opcode: 1, payload: TestSignalR.call("GetUnreadCount", id: "2"))
            try await eventually("the acknowledgement is read") { second.messages.completion("2") != nil }
            let third = try await Self.open(gateway, id: id)
            try await eventually("the old one is dropped") { second.isClosed }
            try await third.send(opcode: 1, payload: TestSignalR.record(#"{"type":9,"sequenceId":3}"#))
            try await third.send(opcode: 1, payload: TestSignalR.call("GetUnreadCount", id: "3"))
            try await eventually("it goes on") { third.messages.completion("3")?["result"]?.integer == 1 }
            #expect(third.messages.first?["sequenceId"]?.integer == 5)
            #expect(third.messages.receivedTitles.isEmpty)
            // Another user cannot resume it, and gets a new connection while the id is fresh.
            let thief = try await Self.open(gateway, id: id, user: "bob")
            if thief.status == 101 {
                try await thief.send(opcode: 1, payload: TestSignalR.record(#"{"protocol":"json","version":2}"#))
                try await eventually("the thief's own count comes") { thief.messages.counts == [0] }
            } else {
                #expect(thief.status == 404)
            }
            try await third.send(opcode: 1, payload: TestSignalR.call("GetUnreadCount", id: "4"))
            try await eventually("it still goes on") { third.messages.completion("4")?["result"]?.integer == 1 }
            #expect(!third.isClosed)
            #expect(thief.messages.receivedTitles.isEmpty)
            for other in others { await other.close() }
        }
    }
}

extension SignalRReconnectTests {
    @Test("a client gets all that it missed, before it can acknowledge any of it")
    func missesMuch() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let first = try await TestSignalR.synced(gateway, user: "ada")
            await first.close()
            try await eventually("its bookmark is stored") {
                try await stack.bookmarks(user: "ada").map { $0.hasSuffix(" 1") } == [true]
            }
            let text = String(repeating: "x", count: 2_000)
            for number in 1...90 {
                try await stack.append([
                    ("user", "ada"), ("type", "invoice_created"), ("title", "n\(number)"), ("body", text),
                ])
            }
            try await eventually("they are settled") {
                try await stack.statuses(user: "ada").values.count { $0 == "sent" } == 90
            }
            let (_, second) = try await Self.start(gateway)
            try await second.send(opcode: 1, payload: TestSignalR.record(#"{"protocol":"json","version":2}"#))
            try await eventually("they come") { second.messages.receivedTitles.count == 90 }
            #expect(!second.isClosed)
        }
    }
}

/// SignalR clients that return after an absence and do not say what they already have.
@Suite(.timeLimit(.minutes(10)))
struct SignalRAbsenceTests {
    /// Sends a notification while the user is offline and waits until it is settled.
    private static func miss(_ stack: Stack, _ title: String) async throws {
        try await stack.notify("ada", title)
        try await eventually("it is settled") { try await stack.statuses(user: "ada")[title] == "sent" }
    }

    /// Waits until all of a user's connections have ended and their bookmarks are stored.
    private static func waitUntilGone(_ stack: Stack, _ count: Int) async throws {
        try await eventually("they are gone") {
            let isOffline = try await stack.connection.send("EXISTS", "carillon:presence:{ada}").integer() == 0
            let ended = try await stack.bookmarks(user: "ada").count { $0.hasSuffix(" 1") }
            return isOffline && ended == count
        }
    }

    @Test("a returning client gets what it missed, even if already settled, and nothing twice")
    func comesBack() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let first = try await TestSignalR.synced(gateway, user: "ada")
            try await stack.notify("ada", "seen")
            try await eventually("it is confirmed") { try await stack.statuses(user: "ada")["seen"] == "delivered" }
            await first.close()
            try await Self.waitUntilGone(stack, 1)
            for title in ["m1", "m2"] { try await Self.miss(stack, title) }

            let second = try await TestSignalR.synced(gateway, user: "ada")
            #expect(second.messages.receivedTitles == ["m1", "m2"])
            #expect(second.messages.counts == [3])
            try await stack.notify("ada", "next")
            try await eventually("it goes on") { second.messages.receivedTitles == ["m1", "m2", "next"] }
            try await eventually("all are confirmed") {
                try await stack.bookmarks(user: "ada").contains { $0.hasSuffix(" 4 0") }
            }
            await second.close()
            try await Self.waitUntilGone(stack, 1)
            let third = try await TestSignalR.synced(gateway, user: "ada")
            #expect(third.messages.receivedTitles.isEmpty)
            await third.close()
        }
    }

    @Test(
        "a client that stopped starts without what it missed; one that closed its socket without a reason resumes",
        arguments: [
            (1, TestSignalR.record(#"{"type":7}"#), []), (8, [0x03, 0xE9], []), (8, [], ["missed"]),
        ] as [(UInt8, [UInt8], [String])])
    func stops(opcode: UInt8, payload: [UInt8], titles: [String]) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let first = try await TestSignalR.synced(gateway, user: "ada")
            try await stack.notify("ada", "seen")
            try await eventually("its bookmark is stored") {
                try await stack.bookmarks(user: "ada").contains { $0.hasSuffix(" 1 0") }
            }
            try await first.send(opcode: opcode, payload: payload)
            _ = try await first.waitForClose()
            try await Self.waitUntilGone(stack, titles.count)
            try await eventually("no other bookmark is left") {
                try await stack.bookmarks(user: "ada").count == titles.count
            }
            try await Self.miss(stack, "missed")
            let second = try await TestSignalR.synced(gateway, user: "ada")
            #expect(second.messages.receivedTitles == titles)
            #expect(second.messages.counts == [2])
        }
    }

    @Test("each of two returning clients gets what it missed, and at most the newest hundred")
    func several() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let sockets = [
                try await TestSignalR.synced(gateway, user: "ada"), try await TestSignalR.synced(gateway, user: "ada"),
            ]
            // Else the second could be the client of the first, back before its loss is noticed.
            try await sockets[0].send(opcode: 1, payload: TestSignalR.record(#"{"type":6}"#))
            for socket in sockets { await socket.close() }
            try await Self.waitUntilGone(stack, 2)
            try await Self.miss(stack, "missed")
            for _ in sockets {
                let socket = try await TestSignalR.synced(gateway, user: "ada")
                #expect(socket.messages.receivedTitles == ["missed"])
                try await eventually("it is confirmed") {
                    try await stack.bookmarks(user: "ada").contains { $0.hasSuffix(" 1 0") }
                }
            }
            try await eventually("no bookmark is left of the first two") {
                try await stack.bookmarks(user: "ada").allSatisfy { $0.hasSuffix(" 1 0") }
            }
        }
        try await Stack.with { stack in
            let gateway = try await stack.startBoth()
            let first = try await TestSignalR.synced(gateway, user: "ada")
            await first.close()
            try await Self.waitUntilGone(stack, 1)
            for number in 1...105 { try await stack.notify("ada", "n\(number)") }
            try await eventually("they are settled") {
                try await stack.statuses(user: "ada").values.count { $0 == "sent" } == 105
            }
            let second = try await TestSignalR.synced(gateway, user: "ada")
            #expect(Set(second.messages.receivedTitles).count == 100)
            #expect(second.messages.receivedTitles.count == 100)
            #expect(second.messages.counts == [105])
        }
    }
}

extension Stack {
    /// The bookmarks of a user's connections, each as `1 <client> <version> <left>`.
    func bookmarks(user: String) async throws -> [String] {
        let reply = try await self.connection.send("HVALS", .text("carillon:bookmarks:{\(user)}"))
        guard var cursor = try reply.cursor(), let count = try cursor.array() else { return [] }
        var bookmarks: [String] = []
        for _ in 0..<count {
            bookmarks.append((try cursor.string() ?? "").split(separator: " ").prefix(4).joined(separator: " "))
        }
        return bookmarks
    }
}
