// Carillon · TransportFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Testing

@Suite("Faults of the connection", .sandbox, .timeLimit(.minutes(10)))
struct TransportFaultTests {
    /// curl 7.88's exit codes: 16 HTTP/2 framing, 18 partial, 28 timeout, 52 nothing, 55 and 56 broken, 92 stream.
    @Test(
        "No answer comes, and nothing is listed",
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

    @Test("GOAWAY names a stream below the request's, and the connection ends")
    func goAway() async throws {
        let client = try #require(SandboxScope.client)
        let token = try client.providerToken()
        let events = try await client.frames([
            (SandboxClient.device(), token), (SandboxClient.device("deade400"), token),
        ])
        #expect(events.suffix(3) == [.status(200), .goAway(last: 1), .closed])
    }

    @Test("A refused stream leaves the connection as it is")
    func refusedStream() async throws {
        let client = try #require(SandboxScope.client)
        let token = try client.providerToken()
        let events = try await client.frames([
            (SandboxClient.device("deade500"), token), (SandboxClient.device(), token),
        ])
        #expect(events.suffix(2) == [.reset(code: 7), .status(200)])
    }

    @Test("A refused stream is safe to send again, and curl does")
    func refused() async throws {
        let client = try #require(SandboxScope.client)
        let device = SandboxClient.device("deade501")
        #expect(try await client.apns(device).status == 200)
        #expect(client.sandbox.faultAttempts()[device] == 2)
    }

    @Test("A slow answer is a good one")
    func slow() async throws {
        let client = try #require(SandboxScope.client)
        #expect(try await client.apns(SandboxClient.device("deade100")).status == 200)
        #expect(try await client.fcm(#"{"message":{"token":"slow-1"}}"#).status == 200)
    }
}
