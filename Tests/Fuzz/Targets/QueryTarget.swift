// Carillon · QueryTarget.swift
// SPDX-License-Identifier: Apache-2.0

import API
import SignalR
import SocketIO
import Transports

/// Queries of requests' targets, as native sockets, REST, Socket.IO and SignalR read them.
struct QueryTarget: FuzzTarget {
    let dictionary = [
        "?", "&", "=", "%", "%00", "%C3%A9", "+", "resume", "access_token", "%2", "%zz", "&&", "==", "EIO=4", "sid=",
        "transport=polling", "ID=",
    ]

    func run(_ input: [UInt8]) async -> FuzzOutcome {
        let text = String(decoding: input, as: UTF8.self)
        return FuzzOutcome(Self.kind(text), fault: Self.fault(text))
    }

    /// What each finds in a text.
    private static func kind(_ text: String) -> String {
        func length(_ text: String?) -> Int { text.map { min($0.utf8.count, 8) } ?? -1 }
        let query = RequestQuery(text)
        let found = ["resume", "access_token", "a", ""].map { length(query[$0]) }
        let anyCase = query.value(anyCase: "RESUME") != nil
        let part = text.drop { $0 != "?" }.dropFirst()
        let engine = EngineIOQuery(part)
        let polling = "\(length(engine.version)) \(length(engine.sid)) \(min(engine.parameters.count, 8))"
        let hub = SignalRQuery(target: text)
        let fields = PercentCoding.fields(part).map { min($0.count, 8) } ?? -1
        return "\(found) \(anyCase) \(polling) \(length(hub["id"])) \(length(hub["access_token"])) \(fields)"
    }

    /// Whatever a text is, written as a value each reads it as itself.
    private static func fault(_ text: String) -> String? {
        let encoded = text.utf8.map { "%" + ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        let query = "x=1&value=\(encoded)&y"
        let target = "/path?\(query)"
        let engine = EngineIOQuery(query).parameters.first { $0.name == "value" }
        let field = PercentCoding.fields(query)?.first { $0.name == "value" }
        let readings: [(parser: String, value: String?)] = [
            ("RequestQuery", RequestQuery(target)["value"]), ("EngineIOQuery", engine?.value),
            ("SignalRQuery", SignalRQuery(target: target)["value"]), ("PercentCoding.fields", field?.value),
            ("PercentCoding.decode", PercentCoding.decode(encoded)),
        ]
        let expected = Array(text.utf8)
        let wrong = readings.first { reading in reading.value.map { Array($0.utf8) } != expected }
        return wrong.map { "\($0.parser) reads an encoded value as another" }
    }
}
