// Carillon · SessionTrace.swift
// SPDX-License-Identifier: Apache-2.0

import Protocols

/// A session and what it did, one short line an action.
///
/// `#7 200 4a|2` answers request 7, `~9 4a` and `~9 [1, 2]` send on WebSocket 9, `~9 closed 1000` closes it, `~9 upgraded`
/// says that it took over, `up a` and `up [1, 2]` deliver, `over pingTimeout` ends. A bar stands for the record separator.
struct SessionTrace {
    static let sid = "abcdefghijklmnopqrst"

    var session: EngineIOSession
    private var actions: [EngineIOAction] = []

    /// A session at time 0, opened by request 0.
    init(polling configuration: EngineIOConfiguration = EngineIOConfiguration()) {
        var actions: [EngineIOAction] = []
        self.session = EngineIOSession(
            sid: Self.sid, polling: EngineIOCarrier(0), configuration: configuration, now: 0, into: &actions)
    }

    /// A session at time 0, opened on WebSocket 0.
    init(webSocket configuration: EngineIOConfiguration) {
        var actions: [EngineIOAction] = []
        self.session = EngineIOSession(
            sid: Self.sid, webSocket: EngineIOCarrier(0), configuration: configuration, now: 0, into: &actions)
    }

    /// A session that probing WebSocket 9 is about to take over, at time 0.
    static func probed(_ configuration: EngineIOConfiguration = EngineIOConfiguration()) -> SessionTrace {
        var trace = SessionTrace(polling: configuration)
        _ = trace.open(9)
        _ = trace.text(9, "2probe")
        return trace
    }

    mutating func get(_ request: UInt64, at now: Milliseconds = 0) -> [String] {
        self.run { $0.pollRequested(EngineIOCarrier(request), now: now, into: &$1) }
    }

    mutating func abortGet(_ request: UInt64, at now: Milliseconds = 0) -> [String] {
        self.run { $0.pollAborted(EngineIOCarrier(request), now: now, into: &$1) }
    }

    mutating func startPost(
        _ request: UInt64, type: String? = "text/plain;charset=UTF-8", length: Int? = nil, at now: Milliseconds = 0
    ) -> [String] {
        self.run {
            _ = $0.postStarted(
                EngineIOCarrier(request), contentType: type, contentLength: length, now: now, into: &$1)
        }
    }

    mutating func finishPost(_ request: UInt64, _ body: String, at now: Milliseconds = 0) -> [String] {
        let body = body.utf8.map { $0 == UInt8(ascii: "|") ? 0x1E : $0 }
        return self.run { $0.postCompleted(EngineIOCarrier(request), body: body, now: now, into: &$1) }
    }

    mutating func abortPost(_ request: UInt64, at now: Milliseconds = 0) -> [String] {
        self.run { $0.postAborted(EngineIOCarrier(request), now: now, into: &$1) }
    }

    mutating func post(_ request: UInt64, _ body: String, at now: Milliseconds = 0) -> [String] {
        self.startPost(request, at: now) + self.finishPost(request, body, at: now)
    }

    mutating func open(_ carrier: UInt64, at now: Milliseconds = 0) -> [String] {
        self.run { $0.webSocketOpened(EngineIOCarrier(carrier), now: now, into: &$1) }
    }

    mutating func text(_ carrier: UInt64, _ text: String, at now: Milliseconds = 0) -> [String] {
        self.run { $0.webSocketText(EngineIOCarrier(carrier), Array(text.utf8), now: now, into: &$1) }
    }

    mutating func binary(_ carrier: UInt64, _ bytes: [UInt8], at now: Milliseconds = 0) -> [String] {
        self.run { $0.webSocketBinary(EngineIOCarrier(carrier), bytes, now: now, into: &$1) }
    }

    mutating func closed(_ carrier: UInt64, failed: Bool = false, at now: Milliseconds = 0) -> [String] {
        self.run { $0.webSocketClosed(EngineIOCarrier(carrier), failed: failed, now: now, into: &$1) }
    }

    mutating func send(_ texts: String...) -> [String] {
        self.run { $0.send(texts.map { .text(Array($0.utf8)) }, into: &$1) }
    }

    mutating func send(bytes: [UInt8]) -> [String] {
        self.run { $0.send([.binary(bytes)], into: &$1) }
    }

    mutating func close(
        _ reason: EngineIOCloseReason = .forcedClose, lingers: Bool = true, at now: Milliseconds = 0
    ) -> [String] {
        self.run { $0.close(reason, lingers: lingers, now: now, into: &$1) }
    }

    mutating func tick(_ now: Milliseconds) -> [String] {
        self.run { $0.tick(now: now, into: &$1) }
    }

    private mutating func run(_ call: (inout EngineIOSession, inout [EngineIOAction]) -> Void) -> [String] {
        var actions: [EngineIOAction] = []
        call(&self.session, &actions)
        return actions.map { Self.line($0) }
    }

    static func line(_ action: EngineIOAction) -> String {
        switch action {
        case .respond(let request, let response):
            "#\(request.number) \(response.status) \(Self.text(response.body))"
        case .sendText(let carrier, let text): "~\(carrier.number) \(Self.text(text))"
        case .sendBinary(let carrier, let bytes): "~\(carrier.number) \(bytes)"
        case .closeWebSocket(let carrier, let code): "~\(carrier.number) closed \(code)"
        case .upgraded(let carrier): "~\(carrier.number) upgraded"
        case .deliver(.text(let text)): "up \(Self.text(text))"
        case .deliver(.binary(let bytes)): "up \(bytes)"
        case .closed(let reason): "over \(reason.rawValue)"
        }
    }

    private static func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.map { $0 == 0x1E ? UInt8(ascii: "|") : $0 }, as: UTF8.self)
    }
}
