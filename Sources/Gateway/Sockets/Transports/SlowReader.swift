// Carillon · SlowReader.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import NIOCore

/// Watches a client that reads more slowly than the gateway writes.
///
/// Closes its connection if it reads too little in time, or if the process holds too many bytes for
/// such clients. Confined to the connection's event loop.
final class SlowReader {
    /// The bytes that a slow client must read within ``patience``.
    ///
    /// For an answer: a tenth of the waiting bytes, if that is more.
    private static let leastRead = 4 * 1024

    private let context: ChannelHandlerContext
    private let patience: Duration
    private let limit: TimeLimit
    /// Counts the waiting bytes of answers.
    private var share: BudgetShare
    /// Bytes that a stream has written since this began to count; nil unless a stream has begun.
    private var streamed: Int?

    init(_ context: ChannelHandlerContext, answers: Budget, patience: Duration, isStream: Bool) {
        self.context = context
        self.patience = patience
        self.limit = TimeLimit(on: context.eventLoop)
        self.share = BudgetShare(of: answers)
        self.streamed = isStream ? 0 : nil
    }

    /// The bytes that wait for the client.
    private var backlog: Int { self.context.channel.backlog }

    /// Begins the time in which the client must read.
    func watch() {
        let (waiting, streamed) = (self.backlog, self.streamed ?? 0)
        self.limit.set(self.patience) { [weak self] in self?.judge(waiting, streamed) }
    }

    /// Closes the connection if the client has read too little of what waited; otherwise continues.
    private func judge(_ waiting: Int, _ streamed: Int) {
        // A stream may be written while the client reads.
        let added = self.streamed.map { $0 - streamed } ?? 0
        let least = self.streamed == nil ? max(Self.leastRead, waiting / 10) : Self.leastRead
        guard self.backlog > waiting + added - least else {
            self.count()
            return self.watch()
        }
        self.close(ConnectionMetrics.refusedSlow)
    }

    /// Counts the answers that the client has not read, and closes the connection if the process
    /// holds too many bytes of them.
    ///
    /// A stream is not counted here, since its endpoint bounds it.
    func count() {
        guard self.streamed == nil, !self.context.channel.isWritable, !self.share.hold(self.backlog) else { return }
        self.close(ConnectionMetrics.refusedMemory)
    }

    private func close(_ refused: Counter) {
        refused.increment()
        // Not the channel's own `close`, which waits for the endpoint's answer.
        self.context.close(mode: .all, promise: nil)
    }

    /// Records that an answer in pieces has begun.
    func beginStream() { self.streamed = 0 }

    /// Records that a stream has written bytes.
    func wrote(_ bytes: Int) { self.streamed = self.streamed.map { $0 + bytes } }

    /// Stops watching: the client has read enough, or the connection has ended.
    func stop() {
        self.limit.remove()
        self.share.clear()
    }
}

extension Channel {
    /// The bytes that wait for a slow client.
    var backlog: Int { (try? self.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0 }
}
