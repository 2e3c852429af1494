// Carillon · EngineIOMessage.swift
// SPDX-License-Identifier: Apache-2.0

/// What the layer above sends and receives: text, as UTF-8, or bytes.
package enum EngineIOMessage: Sendable, Equatable {
    case text([UInt8])
    case binary([UInt8])

    /// Its size in bytes, without any framing.
    package var count: Int {
        switch self {
        case .text(let bytes), .binary(let bytes): bytes.count
        }
    }

    var fitsPolling: Bool {
        if case .text(let text) = self { return !text.contains(EngineIOPayload.separator) }
        return true
    }
}
