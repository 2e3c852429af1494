// Carillon · RedisBatch.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// An argument of a Redis command.
package enum RedisArgument: Sendable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral,
    ExpressibleByStringInterpolation
{
    case text(String)
    case bytes([UInt8])
    case slice(ArraySlice<UInt8>)
    case integer(Int64)

    package init(stringLiteral value: String) {
        self = .text(value)
    }

    package init(integerLiteral value: Int64) {
        self = .integer(value)
    }
}

/// Commands in wire form: encoded once by the caller, sent in one write, answered in order.
package struct RedisBatch: Sendable {
    /// The number of commands, and so of replies.
    package private(set) var count = 0
    private(set) var bytes = ByteBuffer()
    /// The script calls by position, for sending them again after `NOSCRIPT`.
    private(set) var scripts: [(position: Int, call: ScriptCall)] = []

    /// A script call to send again with its source.
    struct ScriptCall: Sendable {
        let script: RedisScript
        let keys: [RedisArgument]
        let arguments: [RedisArgument]
    }

    package init() {}

    package var isEmpty: Bool { self.count == 0 }

    /// Adds a command.
    package mutating func append(_ arguments: RedisArgument...) {
        self.append(arguments)
    }

    /// Adds a command.
    package mutating func append(_ arguments: [RedisArgument]) {
        self.begin(argumentCount: arguments.count)
        for argument in arguments { self.bytes.writeRedisArgument(argument) }
    }

    /// Adds an `XADD` of an entry with a generated id.
    package mutating func append(entry fields: [(name: String, value: [UInt8])], to stream: String) {
        self.begin(argumentCount: 3 + fields.count * 2)
        self.argument("XADD")
        self.argument(.text(stream))
        self.argument("*")
        for field in fields {
            self.argument(.text(field.name))
            self.argument(.bytes(field.value))
        }
    }

    /// Starts a command; add its `argumentCount` arguments, name first, with ``argument(_:)``.
    package mutating func begin(argumentCount: Int) {
        self.count += 1
        self.bytes.writeRedisHead(argumentCount: argumentCount)
    }

    /// Adds the next argument of the started command.
    package mutating func argument(_ argument: RedisArgument) {
        self.bytes.writeRedisArgument(argument)
    }

    /// Returns arguments in wire form, to encode once and add often.
    package static func encoded(_ arguments: RedisArgument...) -> [UInt8] {
        var buffer = ByteBuffer()
        for argument in arguments { buffer.writeRedisArgument(argument) }
        return Array(buffer.readableBytesView)
    }

    /// Appends a text argument in wire form.
    package static func encode(_ text: String, to bytes: inout [UInt8]) {
        let count = text.utf8.count
        bytes.append(UInt8(ascii: "$"))
        if count < 10 {
            bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: count))
        } else if count < 100 {
            bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: count / 10))
            bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: count % 10))
        } else {
            bytes.append(contentsOf: String(count).utf8)
        }
        bytes.append(UInt8(ascii: "\r"))
        bytes.append(UInt8(ascii: "\n"))
        bytes.append(contentsOf: text.utf8)
        bytes.append(UInt8(ascii: "\r"))
        bytes.append(UInt8(ascii: "\n"))
    }

    /// Adds arguments in wire form to the started command.
    package mutating func arguments(encoded bytes: [UInt8]) {
        self.bytes.writeBytes(bytes)
    }

    /// Adds a script call.
    package mutating func append(
        _ script: RedisScript,
        keys: [RedisArgument],
        arguments: [RedisArgument] = []
    ) {
        self.scripts.append((self.count, ScriptCall(script: script, keys: keys, arguments: arguments)))
        self.begin(argumentCount: 3 + keys.count + arguments.count)
        self.argument("EVALSHA")
        self.argument(.text(script.digest))
        self.argument(.integer(Int64(keys.count)))
        for key in keys { self.argument(key) }
        for argument in arguments { self.argument(argument) }
    }
}

extension ByteBuffer {
    private static let lineEnd: StaticString = "\r\n"

    mutating func writeRedisHead(argumentCount: Int) {
        self.writeInteger(UInt8(ascii: "*"))
        self.writeDecimal(argumentCount)
        self.writeStaticString(Self.lineEnd)
    }

    mutating func writeRedisArgument(_ argument: RedisArgument) {
        switch argument {
        case .text(var text): text.withUTF8 { self.writeRedisBulk(UnsafeRawBufferPointer($0)) }
        case .bytes(let bytes): bytes.withUnsafeBytes { self.writeRedisBulk($0) }
        case .slice(let bytes): bytes.withUnsafeBytes { self.writeRedisBulk($0) }
        case .integer(let value):
            var text = String(value)
            text.withUTF8 { self.writeRedisBulk(UnsafeRawBufferPointer($0)) }
        }
    }

    /// Writes `$<length>`, the bytes and both line ends with one check of the capacity.
    private mutating func writeRedisBulk(_ bytes: UnsafeRawBufferPointer) {
        // `$`, at most 19 digits and two line ends.
        self.writeWithUnsafeMutableBytes(minimumWritableBytes: bytes.count + 24) { target in
            // In bounds: the buffer was asked for as many bytes as are written here.
            target[0] = UInt8(ascii: "$")
            var end = 1 + Self.write(decimal: bytes.count, to: UnsafeMutableRawBufferPointer(rebasing: target[1...]))
            end = Self.writeLineEnd(to: target, at: end)
            UnsafeMutableRawBufferPointer(rebasing: target[end...]).copyMemory(from: bytes)
            return Self.writeLineEnd(to: target, at: end + bytes.count)
        }
    }

    private static func writeLineEnd(to target: UnsafeMutableRawBufferPointer, at offset: Int) -> Int {
        target[offset] = UInt8(ascii: "\r")
        target[offset + 1] = UInt8(ascii: "\n")
        return offset + 2
    }

    /// Writes a number that is not negative, and returns the count of its digits.
    private static func write(decimal value: Int, to target: UnsafeMutableRawBufferPointer) -> Int {
        var count = 1
        var rest = value
        while rest >= 10 {
            rest /= 10
            count += 1
        }
        rest = value
        for index in (0..<count).reversed() {
            target[index] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
            rest /= 10
        }
        return count
    }

    private mutating func writeDecimal(_ value: Int) {
        if value < 10 {
            self.writeInteger(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: value))
        } else {
            self.writeString(String(value))
        }
    }
}

/// A Lua script that Redis caches under the SHA-1 of its source.
package struct RedisScript: Sendable {
    let source: String
    /// The SHA-1 of the source in lower-case hexadecimal, as `EVALSHA` takes it.
    let digest: String

    /// - Parameters:
    ///   - source: the Lua source.
    ///   - digest: the SHA-1 of the source; the caller computes it.
    package init(source: String, digest: String) {
        self.source = source
        self.digest = digest
    }
}
