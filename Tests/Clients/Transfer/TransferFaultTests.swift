// Carillon · TransferFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Support
import Testing

@testable import Clients

@Suite("Transfer failures", .transfer, .timeLimit(.minutes(10)))
struct TransferFaultTests {
    @Test(
        "a connection fault is a failure, not an answer",
        arguments: [
            ("deade200", TransferFailure.Reason.timeout),
            ("deade300", .connectionLost),
            ("deade400", .goAway),
            ("deade500", .connectionLost),
        ])
    func fault(marker: String, reason: TransferFailure.Reason) async throws {
        try await TransferScope.withClient { client, sandbox in
            let failure = try await valueInTime("the server has the push") { limit in
                let push = sandbox.push(marker, timeout: reason == .timeout ? limit : .seconds(600))
                let failure = try #require(await client.perform(push).failure)
                return sandbox.faultAttempts()[String(push.url.suffix(64))] == nil ? nil : failure
            }
            #expect(failure.reason == reason, "\(failure)")
            #expect(failure.mayHaveBeenSent)
            #expect(client.snapshot() == TransferSnapshot())

            let next = await client.perform(sandbox.push())
            #expect(next.response?.status == 200, "the client still works")
        }
    }

    @Test("libcurl resends a stream that was refused once")
    func refusedOnce() async throws {
        try await TransferScope.withClient { client, sandbox in
            let push = sandbox.push("deade501")
            #expect(await client.perform(push).response?.status == 200)
            #expect(sandbox.faultAttempts()[String(push.url.suffix(64))] == 2)
        }
    }

    @Test("a request whose kept connection ends before the answer is sent once and may have arrived")
    func keptConnectionEnds() async throws {
        try await HTTPStub.with(HTTPStub.Answer(body: "ok", keepsConnection: true)) { stub in
            try await TransferScope.withClient {
                $0.allowPlainHTTP = true
            } _: { client, _ in
                let request = TransferRequest(
                    .post, url: stub.url + "/push", body: Array("hello".utf8), timeout: .seconds(600))
                #expect(await client.perform(request).response?.status == 200)
                stub.answer(HTTPStub.Answer(body: "", hangsUp: true))
                let failure = try #require(await client.perform(request).failure)
                #expect(failure.reason == .connectionLost && failure.mayHaveBeenSent, "\(failure)")
                stub.answer(HTTPStub.Answer(body: "ok", keepsConnection: true))
                #expect(await client.perform(request).response?.status == 200, "the client still works")
                #expect(stub.received.map(\.body) == [[UInt8]](repeating: Array("hello".utf8), count: 3))
            }
        }
    }

    @Test("a request whose kept HTTP/2 connection is reset is sent once and may have arrived")
    func keptConnectionReset() async throws {
        try await TransferScope.withClient {
            $0.connectionsPerHost = 1
        } _: { client, sandbox in
            for _ in 0..<3 {
                #expect(await client.perform(sandbox.push()).response?.status == 200, "the connection is open")
                let push = sandbox.push("deadf301")
                let failure = try #require(await client.perform(push).failure)
                #expect(failure.reason == .connectionLost && failure.mayHaveBeenSent, "\(failure)")
                #expect(sandbox.faultAttempts()[String(push.url.suffix(64))] == 1)
            }
        }
    }

    @Test("a connection ends once its peer has acknowledged nothing for 15 s")
    func acknowledgement() async throws {
        try await HTTPStub.with(HTTPStub.Answer(body: "ok", keepsConnection: true)) { stub in
            try await TransferScope.withClient {
                $0.allowPlainHTTP = true
            } _: { client, _ in
                let request = TransferRequest(.get, url: stub.url + "/", timeout: .seconds(600))
                #expect(await client.perform(request).response?.status == 200)
                let limits = try OwnSockets.acknowledgementLimits(toPort: stub.port)
                #expect(limits == [15_000])
            }
        }
    }

    @Test("a stream refused on a kept HTTP/2 connection is resent at once")
    func refusedOnKeptConnection() async throws {
        try await TransferScope.withClient {
            $0.connectionsPerHost = 1
        } _: { client, sandbox in
            #expect(await client.perform(sandbox.push()).response?.status == 200)
            let push = sandbox.push("deade501")
            #expect(await client.perform(push).response?.status == 200)
            #expect(sandbox.faultAttempts()[String(push.url.suffix(64))] == 2)
        }
    }

    @Test("a stream that is reset beside a long answer is sent once and may have arrived")
    func resetBesideLongAnswer() async throws {
        for _ in 0..<10 {
            // A new client, as the first long answer of a host matters most.
            try await TransferScope.withClient {
                $0.connectionsPerHost = 1
            } _: { client, sandbox in
                #expect(await client.perform(sandbox.push()).response?.status == 200, "the connection is open")
                let resets = (0..<8).map { _ in sandbox.push("deadeb00") }
                let others = ["deade900", "deade900", "deade900", "0", "0", "0"].map { sandbox.push($0) }
                let outcomes = await withTaskGroup { group in
                    for push in others + resets { group.addTask { (push.url, await client.perform(push)) } }
                    return await group.reduce(into: [:]) { $0[$1.0] = $1.1 }
                }
                for push in resets {
                    let failure = try #require(outcomes[push.url]?.failure)
                    #expect(failure.mayHaveBeenSent, "\(failure)")
                    #expect(sandbox.faultAttempts()[String(push.url.suffix(64))] == 1)
                }
            }
        }
    }

    @Test("a stream refused after a long answer is sent once")
    func refusedAfterLongAnswer() async throws {
        try await TransferScope.withClient { client, sandbox in
            #expect(await client.perform(sandbox.push("deade900")).response?.isComplete == false)
            let push = sandbox.push("deade501")
            let failure = try #require(await client.perform(push).failure)
            #expect(failure.reason == .connectionLost && failure.mayHaveBeenSent, "\(failure)")
            #expect(sandbox.faultAttempts()[String(push.url.suffix(64))] == 1)
        }
    }

    @Test("a body of any length arrives whole", arguments: [0, 1, 16_384, 16_385, 300_000])
    func bodies(length: Int) async throws {
        let body = (0..<length).map { UInt8($0 % 251) }
        try await HTTPStub.with(HTTPStub.Answer(body: "ok", keepsConnection: true)) { stub in
            try await TransferScope.withClient {
                $0.allowPlainHTTP = true
            } _: { client, _ in
                let request = TransferRequest(.post, url: stub.url + "/", body: body, timeout: .seconds(600))
                for _ in 0..<2 { #expect(await client.perform(request).response?.status == 200) }
                #expect(stub.received.map(\.body) == [body, body])
            }
        }
    }

    @Test("a broken connection ends each of its streams once")
    func cutBurst() async throws {
        try await TransferScope.withClient {
            $0.connectionsPerHost = 1
        } _: { client, sandbox in
            #expect(await client.perform(sandbox.push()).response?.status == 200)
            let pushes = (0..<20).map { sandbox.push($0 == 10 ? "deade300" : "0") }
            let outcomes = await withTaskGroup { group in
                for push in pushes { group.addTask { await client.perform(push) } }
                return await group.reduce(into: [TransferOutcome]()) { $0.append($1) }
            }
            #expect(outcomes.count == 20)
            for outcome in outcomes where outcome.response?.status != 200 {
                #expect([.connectionLost, .goAway].contains(outcome.failure?.reason), "\(outcome)")
            }
            #expect(outcomes.contains { $0.failure != nil })
        }
    }

    @Test("nothing is sent to an absent or untrusted server")
    func unreachable() async throws {
        let sandbox = try #require(TransferScope.sandbox)
        try await TransferScope.withClient {
            $0.caFile = nil
        } _: { client, _ in
            let request = TransferRequest(.get, url: sandbox.url + "/healthz", timeout: .seconds(600))
            let failure = await client.perform(request).failure
            #expect(failure?.reason == .tls)
            #expect(failure?.mayHaveBeenSent == false)
        }
        try await TransferScope.withClient { client, _ in
            let request = TransferRequest(.get, url: "https://127.0.0.1:1/", timeout: .seconds(600))
            let failure = await client.perform(request).failure
            #expect(failure?.reason == .connect)
            #expect(failure?.mayHaveBeenSent == false)
        }
    }

    @Test(
        "a private address is a different failure than an absent server",
        arguments: ["127.0.0.1", "localhost", "[::1]"])
    func privateAddress(host: String) async throws {
        try await TransferScope.withClient {
            $0.refusesPrivateAddresses = true
        } _: { client, sandbox in
            let url = sandbox.url.replacing("127.0.0.1", with: host) + "/healthz"
            let failure = await client.perform(TransferRequest(.get, url: url, timeout: .seconds(600))).failure
            #expect(failure?.reason == .privateAddress)
            #expect(failure?.mayHaveBeenSent == false)
        }
    }

    @Test("a name without an address fails, and the request's slot is free")
    func unresolved() async throws {
        try await TransferScope.withClient {
            $0.refusesPrivateAddresses = true
            $0.lookUp = { _ in [] }
        } _: { client, _ in
            let request = TransferRequest(.get, url: "https://name.invalid/", timeout: .seconds(600))
            let failure = await client.perform(request).failure
            #expect(failure == TransferFailure(.resolve, code: 6))
            #expect(client.snapshot() == TransferSnapshot())
        }
    }

    @Test("a missing file of certificate authorities fails the start")
    func missingAuthorities() throws {
        var configuration = TransferConfiguration()
        configuration.caFile = "/nonexistent/ca.pem"
        #expect(throws: TransferError.self) { try TransferClient(configuration: configuration) }
    }

    @Test(
        "a request that cannot be sent unchanged is not sent",
        arguments: [
            TransferRequest(.get, url: "nonsense"),
            TransferRequest(.get, url: "https://"),
            TransferRequest(.get, url: "file:///etc/passwd"),
            TransferRequest(.get, url: "ftp://127.0.0.1/"),
            TransferRequest(.get, url: "https://127.0.0.1/", headers: [(name: "a", value: "b\r\nc: d")]),
            TransferRequest(.get, url: "https://127.0.0.1/", headers: [(name: "a", value: "b\0")]),
            TransferRequest(.get, url: "https://127.0.0.1/", headers: [(name: "a: b", value: "c")]),
            TransferRequest(.get, url: "https://127.0.0.1/", headers: [(name: "", value: "c")]),
            TransferRequest(.get, url: "https://127.0.0.1/\0", headers: []),
        ])
    func invalid(request: TransferRequest) async throws {
        try await TransferScope.withClient { client, _ in
            let failure = await client.perform(request).failure
            #expect(failure == TransferFailure(.invalidRequest, code: failure?.code ?? 0))
            #expect(client.snapshot() == TransferSnapshot(), "its slot is free")
        }
    }

    @Test("a response over the limit is cut, and the connection stays usable")
    func tooLarge() async throws {
        try await TransferScope.withClient { client, sandbox in
            var request = TransferRequest(
                .get, url: sandbox.url + "/healthz", timeout: .seconds(600), maximumResponseBytes: 2)
            let begun = try #require(await client.perform(request).response)
            #expect(begun.status == 200 && !begun.isComplete)
            #expect(begun.body == Array("ok".utf8))
            #expect(begun.header("content-length") == "3")
            request.maximumResponseBytes = 3
            let whole = try #require(await client.perform(request).response)
            #expect(whole.status == 200 && whole.isComplete)
            #expect(whole.body == Array("ok\n".utf8))

            let push = sandbox.push("deadc900")
            let long = try #require(await client.perform(push).response)
            #expect(long.status == 429 && !long.isComplete)
            #expect(long.header("retry-after") == "5")
            #expect(long.body == [UInt8](repeating: UInt8(ascii: "x"), count: push.maximumResponseBytes))
        }
    }

    @Test("a response that breaks off keeps the received part", arguments: [("deadd200", 200), ("deadd000", 400)])
    func breaksOff(marker: String, status: Int) async throws {
        try await TransferScope.withClient { client, sandbox in
            let response = try #require(await client.perform(sandbox.push(marker)).response)
            #expect(response.status == status && !response.isComplete)
            #expect(response.header("content-type") == "application/json; charset=UTF-8")
            #expect(String(decoding: response.body, as: UTF8.self) == #"{"reason":"Unregis"#)
            #expect(await client.perform(sandbox.push()).response?.status == 200, "the client still works")
        }
    }

    @Test("a failure's description holds no secret")
    func words() async throws {
        try await TransferScope.withClient { client, sandbox in
            let push = sandbox.push("deade300")
            let failure = try #require(await client.perform(push).failure)
            for secret in [String(push.url.suffix(64)), push.headers[0].value, "127.0.0.1"] {
                #expect(!"\(failure)".contains(secret))
            }
        }
    }
}
