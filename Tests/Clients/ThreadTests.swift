// Carillon · ThreadTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc
import Support
import Synchronization
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct ThreadTests {
    /// Collects notes from threads.
    private final class Notes: Sendable {
        private let words = Mutex<[String]>([])

        var all: [String] { self.words.withLock { $0 } }

        func add(_ word: String) {
            self.words.withLock { $0.append(word) }
        }
    }

    /// Records the calls of the polling thread.
    private final class Owner: PollingThread.Owner {
        let notes = Notes()

        func socketIsReady(_ socket: CInt) {
            var byte: UInt8 = 0
            // The test writes one byte at a time.
            guard read(socket, &byte, 1) == 1 else { return }
            self.notes.add("\(byte)")
        }

        func tick() -> Bool {
            if !self.notes.all.contains("tick") { self.notes.add("tick") }
            return false
        }
    }

    @Test(
        "a detached thread has its name, cut to 15 bytes",
        arguments: [("short", "short"), ("longer-than-fifteen", "longer-than-fif")]
    )
    func name(given: String, kept: String) async throws {
        let notes = Notes()
        let isStarted = DetachedThread.run(name: given) {
            let bytes = FileManager.default.contents(atPath: "/proc/thread-self/comm")
            notes.add(String(decoding: bytes?.dropLast() ?? Data(), as: UTF8.self))
        }
        #expect(isStarted)
        try await eventually("it has run") { notes.all == [kept] }
    }

    @Test("a write to a pipe without a reader fails without ending the process")
    func brokenPipe() async throws {
        let notes = Notes()
        let isStarted = DetachedThread.run(name: "pipe") {
            var ends: [CInt] = [0, 0]
            guard pipe(&ends) == 0 else { return }
            close(ends[0])
            var byte: UInt8 = 1
            notes.add(write(ends[1], &byte, 1) == -1 && errno == EPIPE ? "failed" : "written")
            close(ends[1])
        }
        #expect(isStarted)
        try await eventually("it has run") { notes.all == ["failed"] }
    }

    @Test("a polling thread runs work in order, watches sockets, ticks, and stops on request")
    func polling() async throws {
        let thread = try #require(PollingThread())
        let owner = Owner()
        #expect(thread.start(name: "polling", owner: owner))
        try await eventually("it ticks") { owner.notes.all == ["tick"] }
        for word in ["a", "b", "c"] { thread.run { owner.notes.add(word) } }
        try await eventually("the work is done") { owner.notes.all == ["tick", "a", "b", "c"] }
        var ends: [CInt] = [0, 0]
        try #require(pipe(&ends) == 0)
        let reading = ends[0]
        thread.run { thread.watch(reading) }
        var byte: UInt8 = 7
        #expect(write(ends[1], &byte, 1) == 1)
        try await eventually("the socket was ready") { owner.notes.all.last == "7" }
        thread.run { thread.unwatch(reading) }
        thread.run { owner.notes.add("last") }
        thread.stop()
        #expect(!thread.run { owner.notes.add("too late") })
        try await eventually("the earlier work is done") { owner.notes.all.last == "last" }
        close(ends[0])
        close(ends[1])
    }
}

@Suite("Doorbells", .timeLimit(.minutes(10)))
struct DoorbellTests {
    @Test("a ring without a waiter is remembered once; a wait without a ring times out")
    func remembered() async throws {
        let bell = try #require(Doorbell())
        let waits = await withCheckedContinuation { continuation in
            // The wait blocks, so it must not use the cooperative pool.
            let isStarted = DetachedThread.run(name: "bell") {
                bell.ring()
                bell.ring()
                continuation.resume(returning: [1_000, 1].map { bell.wait(milliseconds: $0) })
            }
            if !isStarted { continuation.resume(returning: []) }
        }
        #expect(waits == [true, false])
    }

    @Test("a ring ends a wait")
    func rings() async throws {
        let bell = try #require(Doorbell())
        async let hasRung = withCheckedContinuation { continuation in
            let isStarted = DetachedThread.run(name: "bell") {
                continuation.resume(returning: bell.wait(milliseconds: 60_000))
            }
            if !isStarted { continuation.resume(returning: false) }
        }
        bell.ring()
        #expect(await hasRung)
    }
}
