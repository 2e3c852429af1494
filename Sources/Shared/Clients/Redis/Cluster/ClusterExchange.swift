// Carillon · ClusterExchange.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// The commands of a batch for one server.
struct ClusterShare: Sendable {
    let server: RedisAddress.Server
    /// The commands by position in the batch, in order.
    fileprivate(set) var positions: [Int] = []
    fileprivate(set) var bytes = ByteBuffer()
    /// Whether the reply to each command of ``bytes`` belongs to the batch.
    fileprivate(set) var isWanted: [Bool] = []

    /// Returns the replies that belong to the batch.
    func wanted(_ replies: [RedisReply]) -> [RedisReply] { zip(replies, self.isWanted).compactMap { $1 ? $0 : nil } }
}

/// A batch on its way through a cluster: which server gets which command, and the replies so far.
struct ClusterExchange {
    /// Lets a server run the next command although it does not own the slot yet.
    private static let asking: [UInt8] = Array("*1\r\n$6\r\nASKING\r\n".utf8)

    private let bytes: ByteBuffer
    private let commands: [WireCommand]
    private var replies: [RedisReply]
    /// The commands that no server has run yet, by position, in order.
    private(set) var rest: [Int]
    /// The servers that an ASK redirect names for a command, although they do not own its slot yet.
    private var askers: [Int: RedisAddress.Server] = [:]
    /// Whether a command must wait before it is sent again.
    private(set) var mustPause = false
    /// Whether the keys of a command were on both sides of a slot that moves.
    private var isSplit = false
    private var hasRun = false
    private var failure: RedisError?

    init(_ batch: RedisBatch) {
        self.bytes = batch.bytes
        self.commands = WireCommand.split(batch)
        self.replies = Array(repeating: .null, count: batch.count)
        self.rest = Array(self.commands.indices)
    }

    // MARK: Commands

    /// Hands out the commands that no server has run yet.
    ///
    /// - Parameter general: the server of a batch without keys.
    mutating func shares(by map: RedisClusterMap, general: RedisAddress.Server) -> [ClusterShare] {
        let positions = self.rest.sorted()
        self.rest = []
        self.mustPause = false
        var shares: [ClusterShare] = []
        var first: RedisAddress.Server?
        for position in positions where first == nil { first = self.server(of: position, by: map) }
        for position in positions {
            switch self.commands[position].route {
            case .slot:
                if let server = self.server(of: position, by: map) {
                    self.add(position, to: server, &shares)
                } else {
                    self.fail([position], RedisError(.unavailable, "no master of the cluster owns the key's slot"))
                }
            case .first: self.add(position, to: first ?? general, &shares)
            case .everyServer:
                for server in shares.isEmpty ? map.servers : shares.map(\.server) {
                    self.add(position, to: server, &shares)
                }
            }
        }
        return shares
    }

    /// The server of a command's key; nil for a command without a key, or if no server has it.
    private func server(of position: Int, by map: RedisClusterMap) -> RedisAddress.Server? {
        guard case .slot(let slot) = self.commands[position].route else { return nil }
        return self.askers[position] ?? map.owner(of: slot)
    }

    private func add(_ position: Int, to server: RedisAddress.Server, _ shares: inout [ClusterShare]) {
        let index = shares.firstIndex { $0.server == server } ?? shares.endIndex
        if index == shares.endIndex { shares.append(ClusterShare(server: server)) }
        if self.askers[position] != nil {
            shares[index].bytes.writeBytes(Self.asking)
            shares[index].isWanted.append(false)
        }
        let range = self.commands[position].range
        // In bounds: the range comes from the same bytes.
        if let command = self.bytes.getSlice(at: self.bytes.readerIndex + range.lowerBound, length: range.count) {
            shares[index].bytes.writeImmutableBuffer(command)
        }
        shares[index].isWanted.append(true)
        shares[index].positions.append(position)
    }

    // MARK: Replies

    /// Takes a server's replies.
    ///
    /// - Parameter redirect: reads a redirect.
    mutating func receive(
        _ replies: [RedisReply],
        of share: ClusterShare,
        redirect: (RedisReply) -> RedisRedirect?
    ) {
        let answers = zip(share.positions, share.wanted(replies)).map { ($0, $1, redirect($1)) }
        let own = answers.filter { self.commands[$0.0].route != .everyServer }
        // The replies of a server that redirects all its commands do not count for commands of
        // every server.
        let isLeft = !own.isEmpty && own.allSatisfy { $0.2 != nil }
        // Nor does its answer about itself count, because it does not have the batch's first key.
        let hasNoKey = answers.first { self.hasKey($0.0) }.map { $0.2 != nil } ?? false
        for (position, reply, redirect) in answers
        where !isLeft || self.commands[position].route != .everyServer {
            if hasNoKey, self.commands[position].asksServer {
                self.sendAgain([position])
            } else {
                self.record(reply, at: position, redirect: redirect)
            }
        }
    }

    private func hasKey(_ position: Int) -> Bool {
        if case .slot = self.commands[position].route { true } else { false }
    }

    private mutating func record(_ reply: RedisReply, at position: Int, redirect: RedisRedirect?) {
        guard let redirect else {
            self.replies[position] = self.merged(reply, at: position)
            self.hasRun = true
            return
        }
        if case .ask(let server) = redirect { self.askers[position] = server } else { self.askers[position] = nil }
        if redirect == .tryAgain { (self.mustPause, self.isSplit) = (true, true) }
        self.sendAgain([position])
    }

    /// Queues commands again that certainly did not run.
    mutating func sendAgain(_ positions: [Int]) {
        self.rest += positions
        // Every server that runs a command of the batch runs these, too.
        let general = self.commands.indices.filter { self.commands[$0].route == .everyServer }
        self.rest = Array(Set(self.rest + general))
    }

    /// Ends commands with an error.
    mutating func fail(_ positions: [Int], _ error: RedisError) {
        for position in positions { self.replies[position] = .error(error) }
        self.failure = self.failure ?? error
    }

    /// Ends the commands that no server has run.
    mutating func giveUp() {
        let reason =
            self.isSplit
            ? "the slot is moving; its keys are on two servers" : "the cluster redirects the command in circles"
        self.fail(self.rest, RedisError(.unavailable, reason))
    }

    /// Returns the replies.
    ///
    /// - Throws: ``RedisError`` if no server answered.
    func finish() throws(RedisError) -> [RedisReply] {
        if let failure, !self.hasRun { throw failure }
        return self.replies
    }

    /// Returns the reply so far to a command that several servers run: the first error or the least
    /// number.
    private func merged(_ reply: RedisReply, at position: Int) -> RedisReply {
        guard self.commands[position].route == .everyServer else { return reply }
        return switch (self.replies[position], reply) {
        case (.error, _): self.replies[position]
        case (.integer(let least), .integer(let number)): .integer(min(least, number))
        default: reply
        }
    }
}
