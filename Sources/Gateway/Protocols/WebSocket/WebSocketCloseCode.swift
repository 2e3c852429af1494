// Carillon · WebSocketCloseCode.swift
// SPDX-License-Identifier: Apache-2.0

/// Close codes (RFC 6455 section 7.4; 4000 and above are ours).
package enum WebSocketCloseCode: UInt16, Sendable {
    case normal = 1000
    case goingAway = 1001
    case protocolError = 1002
    case unsupportedData = 1003
    case invalidPayload = 1007
    case policyViolation = 1008
    case messageTooBig = 1009
    case internalError = 1011
    case serviceRestart = 1012
    case tryAgainLater = 1013
    case unauthorized = 4401
    case tooSlow = 4408
    case tooManyConnections = 4409

    /// Whether a peer may send this code (RFC 6455 section 7.4.1 and the registry).
    static func isValidOnTheWire(_ code: UInt16) -> Bool {
        switch code {
        case 1000...1003, 1007...1014, 3000...4999: true
        default: false
        }
    }
}
