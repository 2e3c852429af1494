// Carillon · RedisSlot.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// The slots over which a cluster spreads keys.
///
/// Source: redis.io, "Redis cluster specification".
package enum RedisSlot {
    package static let count = 16_384

    /// Returns the slot of a key: the CRC16 of its hash tag, or of all of it if it has none.
    package static func of(_ key: some Collection<UInt8>) -> Int {
        guard let open = key.firstIndex(of: UInt8(ascii: "{")) else { return Self.hash(key) }
        let tag = key[key.index(after: open)...]
        guard let close = tag.firstIndex(of: UInt8(ascii: "}")), close != tag.startIndex else { return Self.hash(key) }
        return Self.hash(tag[..<close])
    }

    private static func hash(_ bytes: some Collection<UInt8>) -> Int {
        var crc: UInt16 = 0
        for byte in bytes { crc = crc << 8 ^ Self.table[Int(UInt8(truncatingIfNeeded: crc >> 8) ^ byte)] }
        return Int(crc) % Self.count
    }

    /// The remainders of CRC16/XMODEM, whose polynomial is 0x1021.
    private static let table: [UInt16] = (0..<256).map { byte in
        (0..<8).reduce(UInt16(byte) << 8) { crc, _ in crc & 0x8000 == 0 ? crc << 1 : crc << 1 ^ 0x1021 }
    }
}

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

    /// Where the command stands among the batch's bytes.
    let range: Range<Int>
    let route: Route

    /// Splits a batch into its commands.
    static func split(_ batch: RedisBatch) -> [WireCommand] {
        batch.bytes.withUnsafeReadableBytes { bytes in
            var reader = WireReader(bytes: bytes)
            var commands: [WireCommand] = []
            commands.reserveCapacity(batch.count)
            while let command = reader.next() { commands.append(command) }
            return commands
        }
    }
}

/// Reads the wire form that ``RedisBatch`` writes.
private struct WireReader {
    /// Commands without a key.
    private static let keyless: Set<String> = [
        "AUTH", "CLIENT", "CLUSTER", "CONFIG", "DBSIZE", "FLUSHALL", "FLUSHDB", "INFO", "KEYS", "PING", "PUBLISH",
        "PUBSUB", "ROLE", "SCAN", "SCRIPT", "SELECT", "SENTINEL", "TIME",
    ]

    let bytes: UnsafeRawBufferPointer
    private var place = 0

    init(bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    mutating func next() -> WireCommand? {
        let start = self.place
        guard let count = self.number() else { return nil }
        let name = self.text()
        let route = self.route(of: name, arguments: count - 1)
        return WireCommand(range: start..<self.place, route: route)
    }

    /// Reads the rest of a command, and finds its first key.
    private mutating func route(of name: String, arguments count: Int) -> WireCommand.Route {
        var key: Slice<UnsafeRawBufferPointer>?
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
        if name == "WAIT" { return .everyServer }
        guard let key, !Self.keyless.contains(name) else { return .first }
        return .slot(RedisSlot.of(key))
    }

    private mutating func text() -> String { String(decoding: self.argument(), as: UTF8.self) }

    private mutating func argument() -> Slice<UnsafeRawBufferPointer> {
        let length = self.number() ?? 0
        defer { self.place += length + 2 }
        return self.bytes[self.place..<self.place + length]
    }

    /// Reads a type's mark, a number and a line's end.
    private mutating func number() -> Int? {
        guard self.place < self.bytes.count else { return nil }
        self.place += 1
        var value = 0
        while self.bytes[self.place] != UInt8(ascii: "\r") {
            value = value * 10 + Int(self.bytes[self.place] - UInt8(ascii: "0"))
            self.place += 1
        }
        self.place += 2
        return value
    }
}
