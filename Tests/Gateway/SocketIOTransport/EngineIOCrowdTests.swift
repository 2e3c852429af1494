// Carillon · EngineIOCrowdTests.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols
import Sockets
import Synchronization
import Testing

/// How many polling sessions there may be.
@Suite("A crowd of polling clients", .timeLimit(.minutes(10)))
struct EngineIOCrowdTests {
    /// Speaks no protocol: whoever says anything is welcome.
    private final class Host: EngineIOApplication {
        private var connection: EngineIOConnection?

        func engineIOOpened(_ connection: EngineIOConnection) { self.connection = connection }
        func engineIOReceived(_ message: EngineIOMessage) { self.connection?.welcome() }
        func engineIOIsTooSlow() { self.connection?.drop() }
        func engineIOClosed(_ reason: EngineIOCloseReason) { self.connection = nil }
    }

    private final class Refusals: Sendable {
        private let counted = Mutex(0)

        var count: Int { self.counted.withLock { $0 } }
        func note() { self.counted.withLock { $0 += 1 } }
    }

    private static func endpoint(sessions: Int, strangers: Int, _ refusals: Refusals) -> EngineIOEndpoint {
        EngineIOEndpoint(
            path: "/engine.io",
            configuration: EngineIOConfiguration(),
            origins: .any,
            maximumPollingSessions: sessions,
            maximumStrangers: strangers,
            isFull: { refusals.note() },
            open: { _, _ in Host() }
        )
    }

    @Test("An address may have so many strangers; who is welcome makes room, and so does who leaves")
    func strangers() throws {
        let refusals = Refusals()
        let endpoint = Self.endpoint(sessions: 100, strangers: 2, refusals)
        let crowd = try PollingClient(endpoint, address: "192.0.2.1")
        let friend = try crowd.open()
        let leaver = try crowd.open()
        let full = try crowd.request("GET", "")
        #expect(full.status == 503)
        #expect(full.body.contains("too many sessions of this address have not joined"))
        #expect(refusals.count == 1)
        let neighbour = try PollingClient(endpoint, address: "192.0.2.2")
        let other = try neighbour.open()

        #expect(try crowd.request("POST", friend, body: "4hello").body == "ok")
        // Once is enough, however often it is said.
        #expect(try crowd.request("POST", friend, body: "4hello").body == "ok")
        let third = try crowd.open()
        #expect(try crowd.request("GET", "").status == 503)
        #expect(try crowd.request("POST", leaver, body: "1").body == "ok")
        let fourth = try crowd.open()
        #expect(try crowd.request("GET", "").status == 503)
        // The leaving of one who was welcome gives nothing back a second time.
        #expect(try crowd.request("POST", friend, body: "1").body == "ok")
        #expect(try crowd.request("GET", "").status == 503)
        #expect(refusals.count == 4)

        for session in [third, fourth] { #expect(try crowd.request("POST", session, body: "1").body == "ok") }
        #expect(try neighbour.request("POST", other, body: "1").body == "ok")
        try crowd.close()
        try neighbour.close()
    }

    @Test("An endpoint has so many sessions, whoever has them; one that is refused counts for nobody")
    func sessions() throws {
        let refusals = Refusals()
        let client = try PollingClient(
            Self.endpoint(sessions: 1, strangers: 2, refusals), address: "2001:db8::1")
        let first = try client.open()
        for _ in 0..<3 {
            let full = try client.request("GET", "")
            #expect(full.status == 503)
            #expect(full.body.contains("too many sessions, try again later"))
        }
        #expect(refusals.count == 3)
        #expect(try client.request("POST", first, body: "1").body == "ok")
        let second = try client.open()
        #expect(try client.request("POST", second, body: "1").body == "ok")
        try client.close()
    }
}
