// Carillon · WireCommand.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// A command of a batch in wire form.
struct WireCommand: Sendable {
    /// Which servers of a cluster run the command.
    enum Route: Sendable, Equatable {
        case slot(Int)
        /// The server of the batch's first key, as the command has none.
        case first
        /// Every server of the batch, with the least reply.
        case everyServer
    }

    /// The command's range among the batch's bytes, counted from the first.
    let range: Range<Int>
    let route: Route
    /// The range of its first key among the batch's bytes; nil if it has none.
    let key: Range<Int>?
    /// Whether it only asks a server about itself, so that it may be sent to another server, too.
    let asksServer: Bool

    /// Splits a batch into its commands.
    static func split(_ batch: RedisBatch) -> [WireCommand] {
        var reader = WireReader(batch.bytes.readableBytesView)
        var commands: [WireCommand] = []
        commands.reserveCapacity(batch.count)
        while let command = reader.next() { commands.append(command) }
        return commands
    }
}

extension RedisBatch {
    /// The slots of its commands' keys in a cluster.
    var slots: Set<Int> {
        var slots: Set<Int> = []
        for command in WireCommand.split(self) {
            if case .slot(let slot) = command.route { slots.insert(slot) }
        }
        return slots
    }

    /// A batch that changes nothing and goes to the same servers: it reads a key of each slot.
    package var probe: RedisBatch {
        var probe = RedisBatch()
        var slots: Set<Int> = []
        let bytes = self.bytes.readableBytesView
        for command in WireCommand.split(self) {
            guard case .slot(let slot) = command.route, let key = command.key, slots.insert(slot).inserted else {
                continue
            }
            let start = bytes.startIndex + key.lowerBound
            probe.append("EXISTS", .bytes(Array(bytes[start..<start + key.count])))
        }
        return probe
    }
}

/// Reads the wire form that ``RedisBatch`` writes.
private struct WireReader {
    /// Commands without a key.
    private static let keyless: Set<String> = [
        "AUTH", "CLIENT", "CLUSTER", "CONFIG", "DBSIZE", "FLUSHALL", "FLUSHDB", "INFO", "KEYS", "PING", "PUBLISH",
        "PUBSUB", "ROLE", "SCAN", "SCRIPT", "SELECT", "SENTINEL", "TIME",
    ]

    private let bytes: ByteBufferView
    private var index: Int

    init(_ bytes: ByteBufferView) {
        self.bytes = bytes
        self.index = bytes.startIndex
    }

    mutating func next() -> WireCommand? {
        let start = self.index
        guard let count = self.number() else { return nil }
        let name = self.text()
        let (route, key) = self.route(of: name, arguments: count - 1)
        let first = self.bytes.startIndex
        return WireCommand(
            range: (start - first)..<(self.index - first), route: route,
            key: key.map { ($0.startIndex - first)..<($0.endIndex - first) },
            asksServer: route == .first && (name == "INFO" || name == "TIME"))
    }

    /// Reads the rest of a command, and finds its first key.
    private mutating func route(
        of name: String,
        arguments count: Int
    ) -> (route: WireCommand.Route, key: ByteBufferView?) {
        var key: ByteBufferView?
        var isAfterStreams = false
        var keyCount = 1
        for number in 1..<(count + 1) {
            let argument = self.argument()
            switch name {
            case "EVAL", "EVALSHA":
                if number == 2 { keyCount = Int(String(decoding: argument, as: UTF8.self)) ?? 0 }
                if number == 3, keyCount > 0 { key = argument }
            case "XREAD", "XREADGROUP":
                if isAfterStreams, key == nil { key = argument }
                isAfterStreams = isAfterStreams || argument.elementsEqual("STREAMS".utf8)
            case "XGROUP", "XINFO": if number == 2 { key = argument }
            default: if number == 1 { key = argument }
            }
        }
        if name == "WAIT" { return (.everyServer, nil) }
        guard let key, !Self.keyless.contains(name) else { return (.first, nil) }
        return (.slot(RedisSlot.of(key)), key)
    }

    private mutating func text() -> String { String(decoding: self.argument(), as: UTF8.self) }

    private mutating func argument() -> ByteBufferView {
        let length = self.number() ?? 0
        defer { self.index += length + 2 }
        return self.bytes[self.index..<self.index + length]
    }

    /// Reads a type's mark, a number and a line's end.
    private mutating func number() -> Int? {
        guard self.index < self.bytes.endIndex else { return nil }
        self.index += 1
        var value = 0
        while self.bytes[self.index] != UInt8(ascii: "\r") {
            value = value * 10 + Int(self.bytes[self.index] - UInt8(ascii: "0"))
            self.index += 1
        }
        self.index += 2
        return value
    }
}
