// Carillon · SignalRTarget.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols

/// Records of SignalR's JSON hub protocol.
struct SignalRTarget: FuzzTarget {
    let dictionary = [
        "\u{1E}", #"{"type":"#, #""target":"a""#, #""arguments":[]"#, #""invocationId":"1""#, #""streamIds":["s"]"#,
        #"{"protocol":"json","version":1}"#, #"{"type":6}"#, "null", "true", "{}", "[]", "\\u0000", "\\ud800",
    ]

    func run(_ input: [UInt8]) async -> FuzzOutcome {
        var splitter = SignalRRecordSplitter(maximumBytes: 4_096)
        let batch = splitter.split(input)
        var kinds: [String] = []
        for record in batch.records {
            switch SignalRHandshake(request: record) {
            case let handshake: kinds.append(String("\(handshake)".prefix { $0 != "(" }))
            }
            do throws(SignalRFault) {
                let message = try SignalRDecoder.message(record)
                kinds.append(message.map { String("\($0)".prefix { $0 != "(" }) } ?? "unknown")
            } catch {
                kinds.append("\(error.code) \(error.location == nil)")
            }
        }
        if batch.isTooLong { kinds.append("too long") }
        return FuzzOutcome(Set(kinds).sorted().joined(separator: " "), fault: self.converse(input))
    }

    /// Feeds a connection with a handshake and the input, whole and byte by byte.
    private func converse(_ input: [UInt8]) -> String? {
        let handshake = Array(#"{"protocol":"json","version":1}"#.utf8) + [SignalRRecordSplitter.separator]
        var whole = SignalRStateMachine(now: 0)
        var cut = SignalRStateMachine(now: 0)
        let first = whole.receive(handshake + input, now: 0)
        let second = (handshake + input).flatMap { cut.receive([$0], now: 0) }
        guard whole.isClosed == cut.isClosed else { return "the close depends on how the bytes are split" }
        return first == second || whole.isClosed ? nil : "the actions depend on how the bytes are split"
    }
}
