// Carillon · SignalRBundle.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// Records that go together to many connections: encoded once, and framed once for all WebSockets.
package struct SignalRBundle: Sendable {
    package let records: [SignalRRecord]
    let bytes: [UInt8]
    let frame: ByteBuffer

    package init(_ records: [SignalRRecord]) {
        self.records = records
        self.bytes = records.flatMap(\.bytes)
        self.frame = WebSocketFraming.text(self.bytes)
    }
}
