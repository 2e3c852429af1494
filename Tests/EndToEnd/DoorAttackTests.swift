// Carillon · DoorAttackTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import Support
import Testing

/// Clients that flood a gateway; `deploy/bench soak --attack` is the long version.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct DoorAttackTests {
    private static let bound = 64 * 1024 * 1024
    /// Memory that the gateway may keep after a flood, in bytes.
    private static let kept = 12 * 1024 * 1024

    @Test("a flood costs the gateway at most 64 MB, which it returns, and other clients lose nothing")
    func memory() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let bystander = try await TestSocket.synced(port: gateway.port, user: "bystander")
            let token = try await Stack.token(user: "attacker")
            try await stack.append([("user", "bystander"), ("type", "invoice_created"), ("title", "n0")])
            try await eventually("the bystander is served") { bystander.titles == ["n0"] }
            // A process's first requests cost memory too, so they come before the measurement.
            let few = DoorAttack.Kind.allCases.map { (kind: $0, count: 2) }
            _ = await DoorAttack(port: gateway.port, token: token, connections: few).run(for: .seconds(1))
            let before = ProcessTable.memory(of: gateway.process.identifier)
            async let attack = DoorAttack(port: gateway.port, token: token).run(for: .seconds(5))
            let titles = (0...40).map { "n\($0)" }
            for title in titles.dropFirst() {
                try await stack.append([("user", "bystander"), ("type", "invoice_created"), ("title", title)])
            }
            let summary = await attack
            try await eventually("the bystander has all") { bystander.titles == titles }
            let after = ProcessTable.memory(of: gateway.process.identifier)
            #expect(after.peak - before.resident <= Self.bound, "\(before) \(after) \(summary)")
            #expect(summary.connects >= 1_082)
            try await eventually("the gateway returns the memory") {
                let now = ProcessTable.memory(of: gateway.process.identifier)
                return now.resident - before.resident <= Self.kept
            }
            // On a busy machine one round may not reach every limit, so attack again.
            try await eventually("what was refused is counted") {
                let page = try await gateway.call(.get, "/metrics", token: nil).response.body
                let samples = try MetricsText(String(decoding: page, as: UTF8.self)).samples
                let isCounted = ["pipeline", "memory"].allSatisfy { reason in
                    (samples[#"carillon_door_refused{reason="\#(reason)"}"#] ?? 0) > 0
                }
                if !isCounted { _ = await DoorAttack(port: gateway.port, token: token).run(for: .seconds(5)) }
                return isCounted
            }
        }
    }

    @Test("pipelined requests are answered in order, whichever endpoint they are for")
    func pipelined() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = try await Stack.token(user: "ada")
            let client = try await TestSocket.connect(port: gateway.port)
            func get(_ path: String, _ fields: String = "") -> String {
                "GET \(path) HTTP/1.1\r\nhost: x\r\n\(fields)\r\n"
            }
            // Endpoints answer the first and the fourth after they have checked the token.
            let requests = [
                get("/v1/stream"), get("/healthz"), get("/v1/notifications", "authorization: Bearer \(token)\r\n"),
                get("/hubs/notifications"), get("/openapi.json/nowhere"),
            ]
            try await client.send(raw: Array(requests.joined().utf8))
            func statuses() -> [Int] {
                client.head.split(separator: "HTTP/1.1 ").compactMap { Int($0.prefix(3)) }
            }
            try await eventually("all are answered") { statuses().count == requests.count }
            #expect(statuses() == [401, 200, 200, 401, 404])
            // The connection stays open.
            try await client.send(raw: Array(get("/healthz").utf8))
            try await eventually("the next is answered") { statuses().count == requests.count + 1 }
            #expect(statuses().last == 200)
            for fields in ["", "host: a\r\nhost: b\r\n"] {
                let hostless = try await TestSocket.connect(port: gateway.port)
                try await hostless.send(raw: Array("GET /healthz HTTP/1.1\r\n\(fields)\r\n".utf8))
                try await eventually("it is refused") { hostless.status == 400 }
            }
        }
    }
}
