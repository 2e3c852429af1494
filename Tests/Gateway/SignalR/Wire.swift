// Carillon · Wire.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols

/// A connection with readable wire texts: `|` stands for the separator.
struct Wire {
    var connection: SignalRConnection

    init(
        configuration: SignalRConfiguration = .standard,
        offersStatefulReconnect: Bool = false,
        hasInherentKeepAlive: Bool = false,
        version: Int? = 1,
        now: Int64 = 0
    ) {
        self.connection = SignalRConnection(
            configuration: configuration,
            offersStatefulReconnect: offersStatefulReconnect,
            hasInherentKeepAlive: hasInherentKeepAlive,
            now: now
        )
        if let version { _ = self.receive(#"{"protocol":"json","version":\#(version)}|"#, now: now) }
    }

    mutating func receive(_ text: String, now: Int64 = 0) -> [SignalRAction] {
        self.connection.receive(Self.bytes(text), now: now)
    }

    static func bytes(_ text: String) -> [UInt8] {
        text.utf8.map { $0 == UInt8(ascii: "|") ? 0x1E : $0 }
    }

    static func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.map { $0 == 0x1E ? UInt8(ascii: "|") : $0 }, as: UTF8.self)
    }
}

extension [SignalRAction] {
    /// All that is written.
    var written: String {
        Wire.text(self.flatMap { if case .write(let bytes) = $0 { bytes } else { [] as [UInt8] } })
    }

    /// The calls that start.
    var calls: [SignalRCall] {
        self.compactMap { if case .invoke(let call) = $0 { call } else { nil } }
    }

    var targets: [String] { self.calls.map(\.invocation.target) }

    var end: SignalREnd? {
        guard case .end(let end) = self.last else { return nil }
        return end
    }
}
