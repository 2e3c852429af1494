// Carillon · FramePublisher.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Frames of one pub/sub message: a format number, then the frames, with big-endian integers.
package struct NodeFrameBatch: Sendable {
    private static let format: UInt8 = 2
    /// An event for everyone; its second body is a JSON array of the users who do not get it.
    private static let eventForEveryone: UInt8 = 5
    /// The size at which a message is full, so that nodes get no huge ones.
    package static let softLimit = 256 * 1024

    package private(set) var bytes: [UInt8] = [Self.format]
    private(set) var count = 0

    package init() {}

    package var isFull: Bool { self.bytes.count >= Self.softLimit }

    package mutating func append(_ frame: NodeFrame) {
        self.count += 1
        let excepted = frame.everyoneBut.map { users in
            JSONWriter.bytes(of: .array(users.sorted().map { .string($0.text) }))
        }
        self.bytes.append(excepted == nil ? frame.kind.rawValue : Self.eventForEveryone)
        self.bytes.append(frame.awaitingLane.map { UInt8($0.rank + 1) } ?? 0)
        self.append(frame.previous)
        self.append(frame.version)
        self.append(frame.unread)
        self.append(frame.id.high)
        self.append(frame.id.low)
        self.append(UInt16(clamping: frame.user.text.utf8.count))
        self.bytes.append(contentsOf: frame.user.text.utf8)
        for body in [frame.body, excepted ?? frame.camelCaseBody] {
            self.append(UInt32(clamping: body.count))
            self.bytes.append(contentsOf: body)
        }
    }

    private mutating func append(_ value: some FixedWidthInteger) {
        withUnsafeBytes(of: value.bigEndian) { self.bytes.append(contentsOf: $0) }
    }

    private static func users(_ json: ArraySlice<UInt8>) -> Set<ExactText> {
        Set(((try? JSONParser.parse(stored: Array(json)))?.strings ?? []).map { ExactText($0) })
    }

    /// Decodes a message; returns nil for an unknown format or kind.
    package static func decode(_ bytes: ArraySlice<UInt8>) -> [NodeFrame]? {
        var reader = FrameReader(bytes)
        guard reader.integer(UInt8.self) == Self.format else { return nil }
        var frames: [NodeFrame] = []
        while !reader.isAtEnd {
            guard
                let code = reader.integer(UInt8.self),
                let kind = code == Self.eventForEveryone ? NodeFrame.Kind.event : NodeFrame.Kind(rawValue: code),
                let lane = reader.integer(UInt8.self),
                let previous = reader.integer(Int64.self),
                let version = reader.integer(Int64.self),
                let unread = reader.integer(Int32.self),
                let high = reader.integer(UInt64.self),
                let low = reader.integer(UInt64.self),
                let userLength = reader.integer(UInt16.self),
                let user = reader.slice(Int(userLength)),
                let bodyLength = reader.integer(UInt32.self),
                let body = reader.slice(Int(bodyLength)),
                let secondLength = reader.integer(UInt32.self),
                let secondBody = reader.slice(Int(secondLength))
            else { return nil }
            let isForEveryone = code == Self.eventForEveryone
            frames.append(
                NodeFrame(
                    kind: kind,
                    user: String(decoding: user, as: UTF8.self),
                    previous: previous,
                    version: version,
                    unread: unread,
                    awaitingLane: Lane(rank: Int(lane) - 1),
                    id: NotificationID(high: high, low: low),
                    body: Array(body),
                    camelCaseBody: isForEveryone ? [] : Array(secondBody),
                    everyoneBut: isForEveryone ? Self.users(secondBody) : nil
                )
            )
        }
        return frames
    }
}

/// Reads big-endian integers and slices with bounds checks.
private struct FrameReader {
    private var rest: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) {
        self.rest = bytes
    }

    var isAtEnd: Bool { self.rest.isEmpty }

    mutating func slice(_ count: Int) -> ArraySlice<UInt8>? {
        guard self.rest.count >= count else { return nil }
        defer { self.rest = self.rest.dropFirst(count) }
        return self.rest.prefix(count)
    }

    mutating func integer<Value: FixedWidthInteger>(_ type: Value.Type) -> Value? {
        self.slice(MemoryLayout<Value>.size)?.reduce(into: Value(0)) { $0 = ($0 << 8) | Value(truncatingIfNeeded: $1) }
    }
}

/// Frames for nodes: in order for each channel, in messages of bounded size.
package struct NodeMessages: Sendable {
    /// Frames for one channel of a node.
    package struct Message: Sendable {
        package let node: String
        fileprivate let channel: String
        fileprivate var frames = NodeFrameBatch()
    }

    private let keys: Keyspace
    private var full: [Message] = []
    /// Messages that are not full, by channel, or by node if each node has only one channel.
    private var filling: [String: Message] = [:]
    package private(set) var frameCount = 0

    package init(_ keys: Keyspace) {
        self.keys = keys
    }

    /// Adds a frame for each node on which its user has a socket.
    package mutating func append(_ frame: NodeFrame, to presence: Presence) {
        guard case .online(let connections) = presence else { return }
        if connections.count == 1 {
            self.append(frame, to: connections[0].node)
        } else {
            for node in Set(connections.map(\.node)) { self.append(frame, to: node) }
        }
    }

    private mutating func append(_ frame: NodeFrame, to node: String) {
        self.frameCount += 1
        let key = self.keys.isSpread ? self.keys.part(of: frame.user.text).nodeChannel(node) : node
        self.filling[
            key, default: Message(node: node, channel: self.keys.isSpread ? key : self.keys.nodeChannel(node))
        ].frames.append(frame)
        if let message = self.filling[key], message.frames.isFull {
            self.full.append(message)
            self.filling[key] = nil
        }
    }

    /// The messages; those of one channel are in order.
    package var all: [Message] { self.full + self.filling.values }

    /// Adds the command that publishes a message; its reply is the number of receivers.
    package func publish(_ message: Message, in batch: inout RedisBatch) {
        batch.append(self.keys.publishCommand, .text(message.channel), .bytes(message.frames.bytes))
    }
}

/// Publishes changes to the nodes on which users have sockets.
package struct FramePublisher: Sendable {
    let live: Live
    private let presence: PresenceRegistry

    package init(_ live: Live, presence: PresenceRegistry) {
        self.live = live
        self.presence = presence
    }

    /// Publishes one frame to every node on which its user has a socket.
    ///
    /// - Parameter isPatient: whether to wait for a server that is away.
    package func publish(_ frame: NodeFrame, isPatient: Bool = true) async throws(RedisError) {
        try await self.publish([frame], isPatient: isPatient)
    }

    /// Publishes frames, in order, to every node on which their users have sockets.
    ///
    /// - Parameter isPatient: whether to wait for a server that is away.
    package func publish(_ frames: [NodeFrame], isPatient: Bool = true) async throws(RedisError) {
        guard !frames.isEmpty else { return }
        if !isPatient { try self.live.connection.failIfAway() }
        var messages = NodeMessages(self.live.keys)
        let presences = try await self.presence.lookUp(frames.map(\.user.text), isPatient: isPatient)
        for (frame, presence) in zip(frames, presences) { messages.append(frame, to: presence) }
        guard messages.frameCount > 0 else { return }
        var batch = RedisBatch()
        for message in messages.all { messages.publish(message, in: &batch) }
        try await self.live.connection.run(batch, isPatient: isPatient)
    }
}
