// Carillon · SocketLoad.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import NIOCore
import NIOPosix
import Synchronization

/// Many sockets from one process, which count what they get and answer pings.
final class SocketLoad: Sendable {
    /// What all sockets saw.
    struct Seen: Sendable {
        var closed = 0
        /// Seconds from the `sent_us` of a notification's or event's data to its arrival.
        var latencies: [Double] = []
    }

    /// One of the sockets, whatever connection it has at the moment.
    struct Place: Sendable {
        let user: LoadUser
        let source: String
        let host: String
        let port: Int
    }

    let seen = Mutex(Seen())
    /// Sockets that came to be up.
    let opened = FrameTally(of: "sockets")
    /// Notifications, syncs after the first, and events on native sockets.
    let frames = FrameTally(of: "frames")
    /// Whether latencies are noted, which costs the load some time for each frame.
    let isTimed = Atomic(true)
    private let channels = Mutex<[ObjectIdentifier: any Channel]>([:])
    private let group: any EventLoopGroup
    private let dialect: LoadDialect
    private let jitter: Duration?
    /// Whether sockets that are gone stay so.
    private let isClosed = Atomic(false)

    /// - Parameter jitter: at most how long a socket waits before each attempt to come back; never comes back if nil.
    init(group: any EventLoopGroup, dialect: LoadDialect = .native, returningWithin jitter: Duration? = nil) {
        self.group = group
        self.dialect = dialect
        self.jitter = jitter
    }

    /// Opens a socket for each user, `width` at a time, and waits until all are up.
    func connect(host: String = "127.0.0.1", port: Int, users: [LoadUser], width: Int = 200) async throws {
        // Whoever is not up by then never will be; its closing fails its promise below.
        let watchdog = self.group.next().scheduleTask(in: .seconds(180)) {
            for channel in self.channels.withLock({ Array($0.values) }) { channel.close(promise: nil) }
        }
        defer { watchdog.cancel() }
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for first in 0..<min(width, users.count) {
                tasks.addTask {
                    for index in stride(from: first, to: users.count, by: width) {
                        // An address pair has 28,000 ports, and a search through those just given up takes long: so few an address.
                        let source = "127.0.0.\(1 + index / 1_000)"
                        try await self.open(Place(user: users[index], source: source, host: host, port: port))
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
            host: place.host,
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

    /// A connection is gone, or did not come about.
    fileprivate func comeBack(_ place: Place) {
        guard let jitter, !self.isClosed.load(ordering: .relaxed) else { return }
        let delay = TimeAmount(jitter * Double.random(in: 0...1))
        self.group.next().scheduleTask(in: delay) { self.attempt(place) }
    }

    private func attempt(_ place: Place) {
        guard !self.isClosed.load(ordering: .relaxed) else { return }
        self.connect(place, isUp: nil).whenFailure { _ in self.comeBack(place) }
    }

    /// Closes all sockets, of which none comes back any more.
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
        if !self.isOpen { self.isUp?.fail(ValidationError("a socket was closed before it was up")) }
        self.load.comeBack(self.place)
    }
}
