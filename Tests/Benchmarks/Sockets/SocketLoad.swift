// Carillon · SocketLoad.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import NIOCore
import NIOPosix
import Synchronization

/// Many client sockets in one process, which count frames and answer pings.
final class SocketLoad: Sendable {
    /// The observations of all sockets.
    struct Seen: Sendable {
        var closed = 0
        /// Seconds from `sent_us` in the data of a notification or event until its arrival.
        var latencies: [Double] = []
    }

    /// The identity of a socket across its connections.
    struct Place: Sendable {
        let user: LoadUser
        let source: String
        let port: Int
    }

    let seen = Mutex(Seen())
    /// Sockets that have completed their connection.
    let opened = FrameTally(of: "sockets")
    /// Notifications, events, and syncs after the first, on native sockets.
    let frames = FrameTally(of: "frames")
    /// Whether to record latencies, which costs time for each frame.
    let isTimed = Atomic(true)
    private let channels = Mutex<[ObjectIdentifier: any Channel]>([:])
    private let group: any EventLoopGroup
    private let dialect: LoadDialect
    private let jitter: Duration?
    /// Whether lost sockets stay closed.
    private let isClosed = Atomic(false)

    /// - Parameter jitter: the longest wait before each reconnect; sockets do not reconnect if nil.
    init(group: any EventLoopGroup, dialect: LoadDialect = .native, returningWithin jitter: Duration? = nil) {
        self.group = group
        self.dialect = dialect
        self.jitter = jitter
    }

    /// Opens a socket for each user, `width` at a time, and waits until all are connected.
    func connect(port: Int, users: [LoadUser], width: Int = 200) async throws {
        // Close the stragglers, which fails their promises below.
        let watchdog = self.group.next().scheduleTask(in: .seconds(180)) {
            for channel in self.channels.withLock({ Array($0.values) }) { channel.close(promise: nil) }
        }
        defer { watchdog.cancel() }
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for first in 0..<min(width, users.count) {
                tasks.addTask {
                    for index in stride(from: first, to: users.count, by: width) {
                        // An address pair has 28,000 ports and searching recently used ones is
                        // slow, so use 1,000 per address.
                        let source = "127.0.0.\(1 + index / 1_000)"
                        try await self.open(Place(user: users[index], source: source, port: port))
                    }
                }
            }
            try await tasks.waitForAll()
        }
    }

    private func open(_ place: Place) async throws {
        let isUp = self.group.next().makePromise(of: Void.self)
        do {
            try await self.connect(place, isUp: isUp).get()
        } catch {
            isUp.fail(error)
        }
        try await isUp.futureResult.get()
    }

    private func connect(_ place: Place, isUp: EventLoopPromise<Void>?) -> EventLoopFuture<Void> {
        let dialect = self.dialect
        return LoadSocketHandler<SocketLoadReader>.connect(
            group: self.group,
            port: place.port,
            source: place.source,
            dialect: dialect,
            token: place.user.token,
            reader: { SocketLoadReader(load: self, dialect: dialect, place: place, isUp: isUp) }
        ).map { channel in
            let key = ObjectIdentifier(channel)
            self.channels.withLock { $0[key] = channel }
            channel.closeFuture.whenComplete { _ in self.channels.withLock { $0[key] = nil } }
        }
    }

    /// Reconnects after a lost or failed connection.
    fileprivate func comeBack(_ place: Place) {
        guard let jitter, !self.isClosed.load(ordering: .relaxed) else { return }
        let delay = TimeAmount(jitter * Double.random(in: 0...1))
        self.group.next().scheduleTask(in: delay) { self.attempt(place) }
    }

    private func attempt(_ place: Place) {
        guard !self.isClosed.load(ordering: .relaxed) else { return }
        self.connect(place, isUp: nil).whenFailure { _ in self.comeBack(place) }
    }

    /// Closes all sockets for good.
    func close() async {
        self.isClosed.store(true, ordering: .relaxed)
        for channel in self.channels.withLock({ Array($0.values) }) { try? await channel.close().get() }
    }
}

/// Counts the messages of one connection.
private struct SocketLoadReader: LoadSocketReader {
    private static let marker = Array(#""sent_us":"#.utf8)

    let load: SocketLoad
    let dialect: LoadDialect
    let place: SocketLoad.Place
    let isUp: EventLoopPromise<Void>?
    private var isOpen = false

    init(load: SocketLoad, dialect: LoadDialect, place: SocketLoad.Place, isUp: EventLoopPromise<Void>?) {
        self.load = load
        self.dialect = dialect
        self.place = place
        self.isUp = isUp
    }

    mutating func read(_ text: ByteBuffer) {
        guard self.isOpen else {
            guard self.dialect.isOpening(text) else { return }
            self.isOpen = true
            self.load.opened.add()
            self.isUp?.succeed(())
            return
        }
        guard self.dialect == .native else { return }
        if text.begins(with: #"{"type":"notification""#) || text.begins(with: #"{"type":"event""#) {
            if self.load.isTimed.load(ordering: .relaxed) { self.noteLatency(text) }
            self.load.frames.add()
        } else if text.begins(with: #"{"type":"sync""#) {
            self.load.frames.add()
        }
    }

    private func noteLatency(_ text: ByteBuffer) {
        let view = text.readableBytesView
        guard let marker = view.firstRange(of: Self.marker) else { return }
        let digits = view[marker.upperBound...].prefix { $0 >= 0x30 && $0 <= 0x39 }
        let sent = digits.reduce(Int64(0)) { $0 * 10 + Int64($1 - 0x30) }
        let latency = Date.now.timeIntervalSince1970 - Double(sent) / 1_000_000
        self.load.seen.withLock { $0.latencies.append(latency) }
    }

    mutating func end() {
        self.load.seen.withLock { $0.closed += 1 }
        if !self.isOpen { self.isUp?.fail(ValidationError("a socket was closed while connecting")) }
        self.load.comeBack(self.place)
    }
}

/// A user of a load.
///
/// Its token is created in advance, because signing costs as much as verifying.
struct LoadUser: Sendable {
    let name: String
    let token: String

    /// Returns users with tokens that the gateway accepts.
    static func named(_ names: [String]) throws -> [LoadUser] {
        try names.map { LoadUser(name: $0, token: try Environment.token(user: $0)) }
    }

    /// Returns users for the bare server, which uses the token as the name.
    static func bare(_ names: [String]) -> [LoadUser] {
        names.map { LoadUser(name: $0, token: $0) }
    }
}

/// Counts arrivals on event loops and signals when a target is reached.
final class FrameTally: Sendable {
    private struct State {
        var count = 0
        var target = Int.max
        var waiter: CheckedContinuation<ContinuousClock.Instant?, Never>?
    }

    private let state = Mutex(State())
    private let name: String

    /// - Parameter name: the counted things, for the error when some are missing.
    init(of name: String) {
        self.name = name
    }

    var count: Int { self.state.withLock { $0.count } }

    func add() {
        let waiter = self.state.withLock { state in
            state.count += 1
            return state.count >= state.target ? Self.release(&state) : nil
        }
        waiter?.resume(returning: .now)
    }

    /// Waits until the count reaches `target`; only one caller may wait at a time.
    ///
    /// - Returns: the time of the last arrival.
    /// - Throws: `ValidationError` after `limit`.
    @discardableResult
    func reach(_ target: Int, within limit: Duration = .seconds(120)) async throws -> ContinuousClock.Instant {
        if self.count >= target { return .now }
        let eventLoop = Environment.eventLoops.next()
        let timeout = eventLoop.scheduleTask(in: TimeAmount(limit)) {
            self.state.withLock { Self.release(&$0) }?.resume(returning: nil)
        }
        let moment = await withCheckedContinuation { continuation in
            let isThere = self.state.withLock { state in
                if state.count >= target { return true }
                state.target = target
                state.waiter = continuation
                return false
            }
            if isThere { continuation.resume(returning: ContinuousClock.Instant?.some(.now)) }
        }
        timeout.cancel()
        guard let moment else { throw ValidationError("only \(self.count) of \(target) \(self.name) arrived") }
        return moment
    }

    private static func release(_ state: inout State) -> CheckedContinuation<ContinuousClock.Instant?, Never>? {
        defer {
            state.waiter = nil
            state.target = .max
        }
        return state.waiter
    }
}
