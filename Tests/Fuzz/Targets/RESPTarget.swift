// Carillon · RESPTarget.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import NIOCore

/// Replies of Redis.
struct RESPTarget: FuzzTarget {
    let dictionary = [
        "\r\n", "$-1\r\n", "*-1\r\n", "*2\r\n", "$3\r\nabc\r\n", ":1\r\n", "+OK\r\n", "-ERR x\r\n", "*", "$",
    ]

    func run(_ input: [UInt8]) async -> FuzzOutcome {
        let whole = Self.read([input])
        // The replies must not depend on how the bytes are split.
        let cut = Self.read(input.map { [$0] })
        return FuzzOutcome(
            whole.kinds.joined(separator: " "),
            fault: whole.kinds == cut.kinds && whole.texts == cut.texts ? nil : "the split changes the replies"
        )
    }

    private static func read(_ pieces: [[UInt8]]) -> (kinds: [String], texts: [String]) {
        guard let reader = try? RESPReader() else { return (["no reader"], []) }
        var kinds: [String] = []
        var texts: [String] = []
        for piece in pieces {
            do {
                try reader.read(ByteBuffer(bytes: piece)) { reply in
                    kinds.append(Self.kind(reply))
                    texts.append((try? reply.string()) ?? "-")
                }
            } catch {
                kinds.append(error.code.rawValue)
                break
            }
        }
        return (kinds, texts)
    }

    private static func kind(_ reply: RedisReply) -> String {
        switch reply {
        case .null: "null"
        case .integer: "integer"
        case .status: "status"
        case .bytes: "bytes"
        case .error: "error"
        case .array: "array"
        }
    }
}
