// Carillon · BadInputTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@Suite(.serialized, .timeLimit(.minutes(10)))
struct BadInputTests {
    private struct Case {
        let fields: [(String, [UInt8])]
        let reason: String

        init(_ fields: [(String, String)], _ reason: String) {
            self.fields = fields.map { ($0.0, Array($0.1.utf8)) }
            self.reason = reason
        }

        init(bytes: [(String, [UInt8])], _ reason: String) {
            self.fields = bytes
            self.reason = reason
        }
    }

    private static let type = ("type", "invoice_created")
    private static let cases: [Case] = [
        Case([("user", "u"), type, ("colour", "red")], "colour: is not a field of a job"),
        Case([("user", "u"), type, ("data", "{")], "data: is not valid JSON"),
        Case([("user", "u"), type, ("data", "[1]")], "data: must be a JSON object"),
        Case([("user", "u"), ("type", "unheard_of")], "type: is not in the catalog"),
        Case([type, ("title", "x")], "user: give one of user, users, topic, all"),
        Case([("user", "u"), ("users", #"["v"]"#), type], "user: give only one of"),
        Case([("user", "u"), type, ("title", String(repeating: "é", count: 256))], "title: is longer than 255"),
        Case([("user", "u"), type, ("body", String(repeating: "x", count: 1_048_576))], "body: is longer than"),
        Case([("user", ""), type], "user: is empty"),
        Case([("user", String(repeating: "u", count: 129)), type], "user: is longer than 128"),
        Case([("user", "u"), type, ("data", #"{"a":"\u0000"}"#)], "the character U+0000"),
        Case([("user", "u"), type, ("data", #"{"a":"\ud800"}"#)], "a lone surrogate"),
        Case(
            bytes: [("user", Array("u".utf8)), ("type", Array("invoice_created".utf8)), ("title", [0x61, 0, 0x62])],
            "title: holds the character U+0000"
        ),
        Case(
            bytes: [("user", Array("u".utf8)), ("type", Array("invoice_created".utf8)), ("title", [0xC3, 0x28])],
            "title: is not valid UTF-8"
        ),
    ]

    @Test("a faulty job goes to the dead letters with its fields and reason, and stops nothing")
    func faults() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let socket = try await TestSocket.synced(port: gateway.port, user: "good")
            var expected: [String: String] = [:]
            for (index, item) in Self.cases.enumerated() {
                try await stack.append([("user", "good"), Self.type, ("title", "before \(index)")])
                expected[try await stack.append(bytes: item.fields)] = item.reason
            }
            try await stack.append([("user", "good"), Self.type, ("title", "after")])
            try await eventually("the good ones came") { socket.titles.count == Self.cases.count + 1 }
            try await eventually("the bad ones were set aside") {
                try await stack.deadReasons().count == Self.cases.count
            }
            let reasons = try await stack.deadReasons()
            for (entry, reason) in expected {
                #expect(reasons[entry]?.contains(reason) == true, "\(reason): \(reasons[entry] ?? "nothing")")
            }
            let mirrored = try await stack.query("SELECT count(*) FROM carillon.dead_letters")
            #expect(try mirrored.first?.int8(0) == Int64(Self.cases.count))
            #expect(try await stack.connection.send("XLEN", "carillon:jobs").integer() == 0)
        }
    }

    @Test("a job after ten thousand garbage entries arrives")
    func garbage() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await TestSocket.synced(port: gateway.port, user: "good")
            for index in 0..<100 {
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for number in 0..<100 {
                        let noise = (0..<32).map { UInt8(truncatingIfNeeded: index &* 31 &+ number &* 17 &+ $0 &* 7) }
                        group.addTask { try await stack.append(bytes: [("\(number)", noise)]) }
                    }
                    try await group.waitForAll()
                }
            }
            try await stack.append([("user", "good"), Self.type, ("title", "survivor")])
            _ = try await stack.startDispatcher()
            try await eventually("the good job arrives", within: .seconds(60)) { socket.titles == ["survivor"] }
            try await eventually("all the garbage is set aside") {
                try await stack.connection.send("XLEN", "carillon:dead").integer() == 10_000
            }
        }
    }
}
