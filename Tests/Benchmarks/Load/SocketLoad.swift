// Carillon · SocketLoad.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import NIOCore
import NIOPosix
import Synchronization

/// Many native sockets from one process, which count what they get and answer pings.
final class SocketLoad: Sendable {
    /// What all sockets saw.
    struct Seen: Sendable {
        var open = 0
        var closed = 0
        var frames = 0
        /// Seconds from the `sent_us` of a notification's data to its arrival.
        var latencies: [Double] = []
    }

    let seen = Mutex(Seen())
    private let channels = Mutex<[any Channel]>([])
    private let group: any EventLoopGroup

    init(group: any EventLoopGroup) {
        self.group = group
    }

    /// Opens a socket for each user, `width` at a time, and waits until all are in sync.
    func connect(host: String, port: Int, users: [String], width: Int = 200) async throws {
        let before = self.seen.withLock { $0.open }
        var index = 0
        while index < users.count {
            let batch = users[index..<min(index + width, users.count)]
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                for (offset, user) in batch.enumerated() {
                    let token = try Environment.token(user: user)
                    // Ports of one address pair run out at 28,000, so sockets spread over loopback addresses.
                    let source = "127.0.0.\(1 + (index + offset) / 10_000)"
                    tasks.addTask {
                        let channel = try await NativeSocketHandler<SocketLoadReader>.connect(
                            group: self.group,
                            host: host,
                            port: port,
                            source: source,
                            token: token,
                            reader: { SocketLoadReader(load: self) }
                        )
                        self.channels.withLock { $0.append(channel) }
                    }
                }
                try await tasks.waitForAll()
            }
            index += batch.count
        }
        let deadline = ContinuousClock.now + .seconds(60)
        while self.seen.withLock({ $0.open }) < before + users.count {
            guard ContinuousClock.now < deadline else {
                throw ValidationError(
                    "only \(self.seen.withLock { $0.open } - before) of \(users.count) sockets opened")
            }
            // Sockets count themselves on their loops; often enough for a figure in seconds.
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    /// Closes all sockets.
    func close() async {
        for channel in self.channels.withLock({ $0 }) { try? await channel.close().get() }
    }
}

/// Counts the messages of one socket.
private struct SocketLoadReader: NativeSocketReader {
    private static let marker = Array(#""sent_us":"#.utf8)

    let load: SocketLoad
    private var isOpen = false

    init(load: SocketLoad) {
        self.load = load
    }

    mutating func read(_ text: ByteBuffer) {
        let view = text.readableBytesView
        if !self.isOpen, view.starts(with: Array(#"{"type":"sync""#.utf8)) {
            self.isOpen = true
            self.load.seen.withLock { $0.open += 1 }
            return
        }
        guard
            view.starts(with: Array(#"{"type":"notification""#.utf8))
                || view.starts(with: Array(#"{"type":"sync""#.utf8))
        else { return }
        var latency: Double?
        if let marker = view.firstRange(of: Self.marker) {
            let digits = view[marker.upperBound...].prefix { $0 >= 0x30 && $0 <= 0x39 }
            let sent = digits.reduce(Int64(0)) { $0 * 10 + Int64($1 - 0x30) }
            latency = Date.now.timeIntervalSince1970 - Double(sent) / 1_000_000
        }
        self.load.seen.withLock { seen in
            seen.frames += 1
            if let latency { seen.latencies.append(latency) }
        }
    }

    mutating func end() {
        self.load.seen.withLock { $0.closed += 1 }
    }
}
