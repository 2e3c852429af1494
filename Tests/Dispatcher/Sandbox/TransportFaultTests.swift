// Carillon · TransportFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Testing

@Suite("Connection faults", .sandbox, .timeLimit(.minutes(10)))
struct TransportFaultTests {
    /// curl 7.88 exits with 16 (HTTP/2 framing), 18 (partial), 28 (timeout), 52 (empty), 55 and 56
    /// (broken) or 92 (stream).
    @Test(
        "gives no answer and lists nothing",
        arguments: [
            ("silent", "deade200", [28]), ("cut", "dead" + "e300", [16, 18, 52, 55, 56, 92]),
            ("goaway", "deade400", [16, 18, 52, 56, 92]),
        ])
    func noAnswer(word: String, code: String, exits: [Int32]) async throws {
        let client = try #require(SandboxScope.client)
        let token = "\(word)-" + SandboxClient.device()
        let fcm = try await client.fcm(#"{"message":{"token":"\#(token)"}}"#, "-m", word == "silent" ? "1" : "10")
        #expect(exits.contains(fcm.exit), "curl exited \(fcm.exit)")
        #expect(fcm.status == 0)
        let device = SandboxClient.device(code)
        let apns = try await client.apns(device, "-m", word == "silent" ? "1" : "10")
        #expect(exits.contains(apns.exit), "curl exited \(apns.exit)")
        #expect(!client.sandbox.received().contains { $0.token == token || $0.token == device })
    }

    @Test("sends GOAWAY below the request's stream and closes the connection")
    func goAway() async throws {
        let client = try #require(SandboxScope.client)
        let token = try client.providerToken()
        let events = try await client.frames([
            (SandboxClient.device(), token), (SandboxClient.device("deade400"), token),
        ])
        #expect(events.suffix(3) == [.status(200), .goAway(last: 1), .closed])
    }

    @Test("refuses a stream and keeps the connection")
    func refusedStream() async throws {
        let client = try #require(SandboxScope.client)
        let token = try client.providerToken()
        let events = try await client.frames([
            (SandboxClient.device("deade500"), token), (SandboxClient.device(), token),
        ])
        #expect(events.suffix(2) == [.reset(code: 7), .status(200)])
    }

    @Test("lets curl resend a refused stream")
    func refused() async throws {
        let client = try #require(SandboxScope.client)
        let device = SandboxClient.device("deade501")
        #expect(try await client.apns(device).status == 200)
        #expect(client.sandbox.faultAttempts()[device] == 2)
    }

    @Test("answers late but correctly")
    func slow() async throws {
        let client = try #require(SandboxScope.client)
        #expect(try await client.apns(SandboxClient.device("deade100")).status == 200)
        #expect(try await client.fcm(#"{"message":{"token":"slow-1"}}"#).status == 200)
    }
}
