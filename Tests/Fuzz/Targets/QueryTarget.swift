// Carillon · QueryTarget.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols

/// Query strings, as native sockets, REST, Socket.IO and SignalR read them.
struct QueryTarget: FuzzTarget {
    let dictionary = [
        "?", "&", "=", "%", "%00", "%C3%A9", "+", "resume", "access_token", "%2", "%zz", "&&", "==", "EIO=4", "sid=",
        "transport=polling", "ID=",
    ]

    func run(_ input: [UInt8]) async -> FuzzOutcome {
        let text = String(decoding: input, as: UTF8.self)
        return FuzzOutcome(Self.kind(text), fault: Self.fault(text))
    }

    /// Summarises the values that each reader finds.
    private static func kind(_ text: String) -> String {
        func length(_ text: String?) -> Int { text.map { min($0.utf8.count, 8) } ?? -1 }
        let strict: RequestQuery
        do throws(QueryFault) {
            strict = try RequestQuery(target: text)
        } catch {
            return error.reason
        }
        let found = ["resume", "access_token", "a", ""].map { length(strict[$0]) }
        let engine = EngineIOQuery(strict)
        let polling = "\(length(engine.version)) \(length(engine.sid)) \(min(engine.parameters.count, 8))"
        let hub = (try? RequestQuery(target: text, ignoresCase: true)).map { query in
            let request = SignalRConnectRequest(query: query, authorization: nil)
            return "\(length(request.id)) \(length(request.accessToken))"
        }
        return "\(found) \(polling) \(hub ?? "twice") \(min(strict.fields.count, 8))"
    }

    /// A text that is encoded as a value must decode to itself, unless it is refused.
    private static func fault(_ text: String) -> String? {
        guard !CombiningMarks.areTooMany(in: text) else { return nil }
        let encoded = text.utf8.map { "%" + ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        let query = "x=1&value=\(encoded)&y"
        let readings: [(parser: String, value: String?)] = [
            ("RequestQuery", (try? RequestQuery(target: "/path?\(query)"))?["value"]),
            ("PercentCoding", PercentCoding.decode(encoded)),
        ]
        let expected = Array(text.utf8)
        let wrong = readings.first { reading in reading.value.map { Array($0.utf8) } != expected }
        return wrong.map { "\($0.parser) decodes a value wrongly" }
    }
}
