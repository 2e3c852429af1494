// Carillon · EngineIOEndpointTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOHTTP1
import Protocols
import Sockets
import Testing

@Suite("Engine.IO at a path", .timeLimit(.minutes(10)))
struct EngineIOEndpointTests {
    private static let endpoint = EngineIOEndpoint(
        path: "/engine.io",
        configuration: EngineIOConfiguration(maximumPayload: 1_000),
        origins: .any
    ) { _, _ in nil }

    @Test("Its path is claimed with and without a slash, and no other")
    func claims() {
        let table = [
            ("/engine.io", true), ("/engine.io/", true), ("/engine.io//", false), ("/engine.i", false), ("/", false),
            ("", false), ("/engine.io/x", false),
        ]
        for (path, isClaimed) in table { #expect(Self.endpoint.claims(path[...]) == isClaimed, "\(path)") }
        #expect(Self.endpoint.maximumBody == 1_000)
    }

    @Test("Upgrades that name no session of ours are refused with the protocol's own words")
    func refusals() async throws {
        let table = [
            ("transport=abc&EIO=4", "Transport unknown"), ("EIO=4", "Transport unknown"),
            ("EIO=4&transport=websocket&sid=abc", "Session ID unknown"), ("EIO=4&transport=polling", "Bad request"),
            ("EIO=3&transport=websocket", "Unsupported protocol version"),
        ]
        for (query, message) in table {
            let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/engine.io/?\(query)")
            let refusal = await #expect(throws: TransportRefusal.self) {
                _ = try await Self.endpoint.admit(head, from: nil)
            }
            #expect(refusal?.status == .badRequest)
            #expect(refusal?.headers.first(name: "content-type") == "text/html")
            #expect(refusal.map { String(decoding: $0.body, as: UTF8.self) } == message)
        }
        let good = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/engine.io/?EIO=4&transport=websocket")
        let admission = try await Self.endpoint.admit(good, from: nil)
        #expect(admission.limits.maximumMessage == 1_000)
    }
}
