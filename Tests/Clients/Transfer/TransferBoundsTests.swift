// Carillon · TransferBoundsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Support
import Synchronization
import Testing

@testable import Clients

@Suite("Transfer limits, cancelling and shutdown", .transfer, .timeLimit(.minutes(10)))
struct TransferBoundsTests {
    private static let silent = "deade200"

    @Test("a cancelled task is answered at once, its stream is reset, and others continue")
    func cancelInFlight() async throws {
        try await TransferScope.withClient {
            $0.connectionsPerHost = 1
        } _: { client, sandbox in
            let push = sandbox.push(Self.silent)
            let task = Task { await client.perform(push) }
            try await client.wait { $0.inFlight == 1 }
            task.cancel()
            #expect(await task.value.failure?.reason == .cancelled)
            #expect(await client.perform(sandbox.push()).response?.status == 200)
        }
    }

    @Test("a task cancelled beforehand is not sent, and does not wait while all slots are taken")
    func cancelBefore() async throws {
        try await TransferScope.withClient {
            $0.maximumInFlight = 1
        } _: { client, sandbox in
            let silent = sandbox.push(Self.silent)
            let holder = Task { await client.perform(silent) }
            try await client.wait { $0.inFlight == 1 }
            let push = sandbox.push()
            let device = String(push.url.suffix(64))
            let task = Task {
                while !Task.isCancelled { await Task.yield() }
                return await client.perform(push)
            }
            task.cancel()
            #expect(await task.value.failure == TransferFailure(.cancelled))
            #expect(!sandbox.received().contains { $0.token == device })
            holder.cancel()
            #expect(await holder.value.failure?.reason == .cancelled)
        }
    }

    @Test("a waiting request can be cancelled or time out without being sent")
    func waiting() async throws {
        try await TransferScope.withClient {
            $0.maximumInFlight = 1
        } _: { client, sandbox in
            let first = sandbox.push(Self.silent)
            let second = sandbox.push()
            let holder = Task { await client.perform(first) }
            try await client.wait { $0.inFlight == 1 }
            let waiter = Task { await client.perform(second) }
            try await client.wait { $0.waiting == 1 }
            waiter.cancel()
            #expect(await waiter.value.failure == TransferFailure(.cancelled))

            let start = ContinuousClock.now
            let late = sandbox.push(timeout: .seconds(2))
            #expect(await client.perform(late).failure == TransferFailure(.noTurn))
            #expect(start.duration(to: .now) >= .seconds(1))
            holder.cancel()
            #expect(await holder.value.failure?.reason == .cancelled)
            let devices = [second, late].map { String($0.url.suffix(64)) }
            #expect(!sandbox.received().contains { devices.contains($0.token) })
            #expect(client.snapshot() == TransferSnapshot(), "their slots are free")
        }
    }

    @Test("answers that arrive while the thread stalls count, although their time limit passes")
    func stall() async throws {
        let bell = try #require(Doorbell())
        try await TransferScope.withClient {
            $0.connectionsPerHost = 1
        } _: { client, sandbox in
            #expect(await client.perform(sandbox.push()).response?.status == 200, "the connection is open")
            let devices = try await valueInTime("the answers arrive while the thread stalls") { limit -> [String]? in
                // The sandbox answers them after two seconds.
                let pushes = (0..<20).map { _ in sandbox.push("deade100", timeout: limit) }
                let devices = pushes.map { String($0.url.suffix(64)) }
                let calls = pushes.map { push in Task { await client.perform(push) } }
                try? await eventually("the sandbox has the pushes", within: limit) {
                    let attempts = sandbox.faultAttempts()
                    return devices.allSatisfy { attempts[$0] != nil }
                }
                let stall = sandbox.push {
                    _ = bell.wait(milliseconds: (limit + .seconds(3)).milliseconds)
                    return false
                }
                #expect(await client.perform(stall).failure == TransferFailure(.fenced))
                let statuses = await calls.asyncMap { await $0.value.response?.status }
                return statuses.allSatisfy { $0 == 200 } ? devices : nil
            }
            let attempts = sandbox.faultAttempts()
            #expect(devices.allSatisfy { attempts[$0] == 1 })
            #expect(client.snapshot() == TransferSnapshot())
        }
    }

    @Test("a request waits for half of its time at most; the other half is for the call")
    func half() {
        let start = ContinuousClock.now
        let ticket = Ticket<Void, Void>((), start: start, timeout: .seconds(6))
        #expect(ticket.turnDeadline == start + .seconds(3))
        #expect(ticket.deadline == start + .seconds(6))
    }

    @Test("urgent requests overtake waiting ones")
    func priority() async throws {
        try await TransferScope.withClient {
            $0.maximumInFlight = 1
        } _: { client, sandbox in
            let silent = sandbox.push(Self.silent)
            let holder = Task { await client.perform(silent) }
            try await client.wait { $0.inFlight == 1 }
            var devices: [String] = []
            var waiters: [Task<TransferOutcome, Never>] = []
            for priority in [TransferPriority.low, .normal, .high] {
                let push = sandbox.push(priority: priority)
                devices.append(String(push.url.suffix(64)))
                waiters.append(Task { await client.perform(push) })
                let count = waiters.count
                try await client.wait { $0.waiting == count }
            }
            holder.cancel()
            for waiter in waiters { #expect(await waiter.value.response?.status == 200) }
            let order = sandbox.received().compactMap { devices.firstIndex(of: $0.token) }
            #expect(order == [2, 1, 0])
        }
    }

    @Test("a request beyond the limit is refused at once and not sent")
    func overloaded() async throws {
        try await TransferScope.withClient {
            $0.maximumInFlight = 1
            $0.maximumWaiting = 1
        } _: { client, sandbox in
            let pushes = (0..<2).map { _ in sandbox.push(Self.silent) }
            let holders = pushes.map { push in Task { await client.perform(push) } }
            try await client.wait { $0.inFlight == 1 && $0.waiting == 1 }
            let excess = sandbox.push()
            #expect(await client.perform(excess).failure == TransferFailure(.overloaded))
            #expect(client.snapshot() == TransferSnapshot(inFlight: 1, waiting: 1), "it took no slot")
            for holder in holders { holder.cancel() }
            for holder in holders { #expect(await holder.value.failure?.reason == .cancelled) }
            let device = String(excess.url.suffix(64))
            #expect(!sandbox.received().contains { $0.token == device })
        }
    }

    @Test("a hanging host takes only its own share")
    func fairness() async throws {
        try await TransferScope.withClient {
            $0.connectionsPerHost = 2
            $0.streamsPerConnection = 2
        } _: { client, sandbox in
            #expect(await client.perform(sandbox.push()).response?.version == .http2)
            let pushes = (0..<20).map { _ in sandbox.push(Self.silent) }
            let holders = pushes.map { push in Task { await client.perform(push) } }
            try await client.wait { $0.inFlight == 4 && $0.waiting == 16 }
            #expect(await client.perform(sandbox.push(host: "localhost")).response?.status == 200)
            for holder in holders { holder.cancel() }
            for holder in holders { #expect(await holder.value.failure?.reason == .cancelled) }
        }
    }

    @Test("a host whose name server is silent delays no other host", arguments: [true, false])
    func silentNameServer(refusesPrivateAddresses: Bool) async throws {
        let bell = try #require(Doorbell())
        // The sandbox's certificate has none of these names.
        let reason: TransferFailure.Reason = refusesPrivateAddresses ? .privateAddress : .tls
        try await TransferScope.withClient {
            $0.strangersChooseURLs = true
            $0.refusesPrivateAddresses = refusesPrivateAddresses
            $0.proxy = ""
            // No name below "invalid" exists (RFC 6761), so libcurl itself would find none.
            $0.lookUp = { host in
                if host == "silent.invalid" { _ = bell.wait(milliseconds: 600_000) }
                return ["127.0.0.1", "::1"]
            }
        } _: { client, sandbox in
            let requests = ["silent", "Other", "an%6Fther"].map { name in
                let url = sandbox.url.replacing("127.0.0.1", with: name + ".invalid")
                return TransferRequest(.get, url: url, timeout: .seconds(600))
            }
            let silent = requests[0]
            let holder = Task { await client.perform(silent) }
            try await client.wait { $0.waiting == 1 }
            for request in requests.dropFirst() {
                #expect(await client.perform(request).failure?.reason == reason)
            }
            #expect(client.snapshot() == TransferSnapshot(waiting: 1))
            bell.ring()
            #expect(await holder.value.failure?.reason == reason)
        }
    }

    @Test("a request whose host is being looked up counts as waiting, and can be cancelled or shut down")
    func waitingForName() async throws {
        let bell = try #require(Doorbell())
        try await TransferScope.withClient {
            $0.refusesPrivateAddresses = true
            $0.maximumInFlight = 1
            $0.maximumWaiting = 1
            $0.lookUp = { _ in
                _ = bell.wait(milliseconds: 600_000)
                return []
            }
        } _: { client, _ in
            let request = TransferRequest(.get, url: "https://silent.invalid/", timeout: .seconds(600))
            let holders = (0..<2).map { _ in Task { await client.perform(request) } }
            try await client.wait { $0.waiting == 2 }
            #expect(await client.perform(request).failure == TransferFailure(.overloaded))
            holders[0].cancel()
            #expect(await holders[0].value.failure == TransferFailure(.cancelled))
            await client.shutdown()
            #expect(await holders[1].value.failure == TransferFailure(.shutdown))
            #expect(await client.perform(request).failure == TransferFailure(.shutdown))
            #expect(client.snapshot() == TransferSnapshot())
            bell.ring()
        }
    }

    @Test("requests to a host that has not answered over HTTP/2 wait in our queue, not inside libcurl")
    func narrowHost() async throws {
        try await HTTPStub.with(HTTPStub.Answer(body: "", isSilent: true)) { stub in
            try await TransferScope.withClient {
                $0.allowPlainHTTP = true
                $0.connectionsPerHost = 2
            } _: { client, _ in
                let silent = TransferRequest(.get, url: stub.url + "/silent", timeout: .seconds(600))
                for _ in 0..<2 {
                    let holders = (0..<5).map { _ in Task { await client.perform(silent) } }
                    try await client.wait { $0.inFlight == 2 && $0.waiting == 3 }
                    for holder in holders { holder.cancel() }
                    for holder in holders { #expect(await holder.value.failure?.reason == .cancelled) }
                    // An answer over HTTP/1 changes nothing.
                    stub.answer(HTTPStub.Answer(body: ""))
                    let quick = TransferRequest(.get, url: stub.url + "/quick", timeout: .seconds(600))
                    #expect(await client.perform(quick).response?.version == .http1)
                    stub.answer(HTTPStub.Answer(body: "", isSilent: true))
                }
            }
        }
    }

    @Test("shutting down answers every caller, later ones included")
    func shutdown() async throws {
        try await TransferScope.withClient {
            $0.maximumInFlight = 2
        } _: { client, sandbox in
            let pushes = (0..<5).map { _ in sandbox.push(Self.silent) }
            let holders = pushes.map { push in Task { await client.perform(push) } }
            try await client.wait { $0.inFlight == 2 && $0.waiting == 3 }
            await client.shutdown()
            let failures = await holders.asyncMap { await $0.value.failure }
            #expect(failures.allSatisfy { $0?.reason == .shutdown })
            #expect(failures.filter { $0?.mayHaveBeenSent == false }.count >= 3)
            #expect(await client.perform(sandbox.push()).failure == TransferFailure(.shutdown))
            await client.shutdown()
            #expect(client.snapshot() == TransferSnapshot())
        }
    }

    @Test("a request that is cancelled before libcurl has worked on it was certainly not sent")
    func cancelUntouched() async throws {
        let (answers, answer) = AsyncStream.makeStream(of: Void.self)
        let held = HTTPStub.Answer(body: "", hold: { for await _ in answers {} })
        try await HTTPStub.with(held) { stub in
            try await TransferScope.withClient {
                $0.allowPlainHTTP = true
                $0.maximumInFlight = 1
            } _: { client, _ in
                let first = TransferRequest(.get, url: stub.url + "/first", timeout: .seconds(600))
                let holder = Task { await client.perform(first) }
                try await eventually("the server has the first") { stub.requests == 1 }
                let task = Mutex<Task<TransferOutcome, Never>?>(nil)
                // Asked when the answer to the first has freed the only handle.
                let second = TransferRequest(.get, url: stub.url + "/second", timeout: .seconds(600)) {
                    task.withLock { $0 }?.cancel()
                    return true
                }
                let waiter = Task { await client.perform(second) }
                task.withLock { $0 = waiter }
                try await client.wait { $0.waiting == 1 }
                answer.finish()
                #expect(await holder.value.response?.status == 200)
                #expect(await waiter.value.failure == TransferFailure(.cancelled))
                #expect(stub.requests == 1)
            }
        }
    }

    @Test("cancelling at any time answers each caller once")
    func cancelRace() async throws {
        try await TransferScope.withClient {
            $0.maximumInFlight = 10
        } _: { client, sandbox in
            let request = TransferRequest(.get, url: sandbox.url + "/healthz", timeout: .seconds(600))
            let tasks = (0..<300).map { _ in Task { await client.perform(request) } }
            for (index, task) in tasks.enumerated() where index.isMultiple(of: 3) {
                if index.isMultiple(of: 30) { await Task.yield() }
                task.cancel()
            }
            for (index, task) in tasks.enumerated() {
                let outcome = await task.value
                if index.isMultiple(of: 3) {
                    #expect(outcome.response?.status == 200 || outcome.failure?.reason == .cancelled)
                } else {
                    #expect(outcome.response?.status == 200)
                }
            }
            // A request that was answered twice would free two slots.
            #expect(client.snapshot() == TransferSnapshot())
        }
    }
}

extension Array {
    fileprivate func asyncMap<Result>(_ transform: (Element) async -> Result) async -> [Result] {
        var results: [Result] = []
        for element in self { results.append(await transform(element)) }
        return results
    }
}
