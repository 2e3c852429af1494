// Carillon · TransferFenceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Support
import Synchronization
import Testing

@testable import Clients

@Suite("Transfers that may no longer start", .transfer, .timeLimit(.minutes(10)))
struct TransferFenceTests {
    @Test("a waiting request that may no longer start when its turn comes is not sent")
    func inQueue() async throws {
        try await TransferScope.withClient {
            $0.maximumInFlight = 1
        } _: { client, sandbox in
            let mayStart = Mutex(true)
            let silent = sandbox.push("deade200")
            let push = sandbox.push(mayStart: { mayStart.withLock { $0 } })
            let device = String(push.url.suffix(64))
            let holder = Task { await client.perform(silent) }
            try await client.wait { $0.inFlight == 1 }
            let waiter = Task { await client.perform(push) }
            try await client.wait { $0.waiting == 1 }
            mayStart.withLock { $0 = false }
            holder.cancel()
            #expect(await waiter.value.failure == TransferFailure(.fenced))
            #expect(await holder.value.failure?.reason == .cancelled)
            #expect(!sandbox.received().contains { $0.token == device })

            mayStart.withLock { $0 = true }
            #expect(await client.perform(push).response?.status == 200, "its slot is free")
            #expect(client.snapshot() == TransferSnapshot())
        }
    }

    @Test("a started request that may no longer start before it has a connection is not sent")
    func withoutConnection() async throws {
        // It does not answer the TLS handshake.
        try await HTTPStub.with(HTTPStub.Answer(body: "")) { stub in
            try await TransferScope.withClient { client, _ in
                let mayStart = Mutex(true)
                let request = TransferRequest(
                    .post, url: stub.url.replacing("http:", with: "https:"), body: Array("hello".utf8),
                    timeout: .seconds(600), mayStart: { mayStart.withLock { $0 } })
                let waiter = Task { await client.perform(request) }
                try await client.wait { $0.inFlight == 1 }
                mayStart.withLock { $0 = false }
                #expect(await waiter.value.failure == TransferFailure(.fenced))
                #expect(stub.requests == 0)
                #expect(client.snapshot() == TransferSnapshot())
            }
        }
    }

    @Test("libcurl resends no refused stream that may no longer start")
    func resend() async throws {
        try await TransferScope.withClient { client, sandbox in
            var push = sandbox.push("deade501")
            let device = String(push.url.suffix(64))
            push.mayStart = { sandbox.faultAttempts()[device] == nil }
            #expect(await client.perform(push).failure == TransferFailure(.fenced))
            #expect(sandbox.faultAttempts()[device] == 1)
            #expect(await client.perform(sandbox.push()).response?.status == 200, "the client still works")
        }
    }
}
