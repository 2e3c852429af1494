// Carillon · QueryTarget.swift
// SPDX-License-Identifier: Apache-2.0

import Transports

/// Queries of requests' targets.
struct QueryTarget: FuzzTarget {
    let dictionary = ["?", "&", "=", "%", "%00", "%C3%A9", "+", "resume", "access_token", "%2", "%zz", "&&", "=="]

    func run(_ input: [UInt8]) async -> FuzzOutcome {
        let text = String(decoding: input, as: UTF8.self)
        let query = RequestQuery(text)
        let found = ["resume", "access_token", "a", ""].map { query[$0].map { min($0.utf8.count, 8) } ?? -1 }
        let anyCase = query.value(anyCase: "RESUME") != nil
        // Whatever the text is, written as a value it is read as itself.
        let encoded = text.utf8.map { "%" + ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        let again = RequestQuery("/path?x=1&value=\(encoded)&y")["value"]
        let isSame = again.map { Array($0.utf8) } == Array(text.utf8)
        return FuzzOutcome("\(found) \(anyCase)", fault: isSame ? nil : "an encoded value is read as another")
    }
}
