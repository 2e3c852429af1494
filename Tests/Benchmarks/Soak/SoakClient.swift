// Carillon · SoakClient.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import NIOCore
import NIOPosix
import Synchronization

/// A user's client: keeps a socket to any running gateway, resumes with its version, and records
/// every notification.
final class SoakClient: Sendable {
    private let user: Int
    private let name: String
    private let group: any EventLoopGroup
    private let ledger: SoakLedger
    private let ports: @Sendable () -> [Int]
    private let version = Mutex<Int64?>(nil)
    let connects = Atomic<Int>(0)

    /// - Parameter ports: returns the ports of the running gateways.
    init(
        user: Int,
        name: String,
        group: any EventLoopGroup,
        ledger: SoakLedger,
        ports: @escaping @Sendable () -> [Int]
    ) {
        self.user = user
        self.name = name
        self.group = group
        self.ledger = ledger
        self.ports = ports
    }

    /// Whether the first sync has arrived.
    var isReady: Bool { self.version.withLock { $0 != nil } }

    /// Stays connected until the task is cancelled.
    func run() async throws {
        let token = try Environment.token(user: self.name)
        while !Task.isCancelled {
            if let port = self.ports().randomElement() {
                do {
                    let channel = try await LoadSocketHandler<SoakReader>.connect(
                        group: self.group,
                        port: port,
                        token: token,
                        resume: self.version.withLock { $0 },
                        reader: { SoakReader(client: self) }
                    ).get()
                    try await withTaskCancellationHandler {
                        try await channel.closeFuture.get()
                    } onCancel: {
                        channel.close(promise: nil)
                    }
                } catch is ChannelError {
                } catch is IOError {
                } catch is NIOConnectionError {
                }
            }
            // Reconnect after a random delay.
            try? await Task.sleep(for: .milliseconds(Int.random(in: 50...500)))
        }
    }

    fileprivate func take(_ text: ByteBuffer) {
        guard let message = try? JSONSerialization.jsonObject(with: Data(text.readableBytesView)) as? [String: Any]
        else { return }
        switch message["type"] as? String {
        case "sync":
            self.connects.add(1, ordering: .relaxed)
            for item in message["notifications"] as? [[String: Any]] ?? [] { self.note(item) }
            self.advance(message["version"])
        case "notification":
            if let item = message["notification"] as? [String: Any] { self.note(item) }
            self.advance(message["version"])
        default: break
        }
    }

    private func note(_ notification: [String: Any]) {
        guard let id = notification["id"] as? String,
            let job = (notification["data"] as? [String: Any])?["n"] as? Int
        else { return }
        self.ledger.noteSocket(job: job, user: self.user, id: id)
    }

    private func advance(_ version: Any?) {
        guard let version = version as? Int else { return }
        self.version.withLock { $0 = max($0 ?? 0, Int64(version)) }
    }
}

private struct SoakReader: LoadSocketReader {
    let client: SoakClient

    func read(_ text: ByteBuffer) { self.client.take(text) }
    func end() {}
}
