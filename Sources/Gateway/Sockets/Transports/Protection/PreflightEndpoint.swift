// Carillon · PreflightEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import NIOCore
import NIOHTTP1

/// Answers what browsers ask before a page's request goes to another origin (Fetch, section 3.2).
struct PreflightEndpoint: TransportEndpoint {
    private static let methods = "GET, HEAD, POST, PUT, PATCH, DELETE"
    /// Seconds for which a browser need not ask again; browsers have limits of their own.
    private static let age = "7200"
    private static let longestFields = 1_024

    let policy: DoorPolicy

    /// The door asks it by the request, not by its path.
    func claims(_ path: Substring) -> Bool { false }

    func admit(_ head: HTTPRequestHead, from address: SocketAddress?) async throws -> WebSocketAdmission {
        throw self.refusal(.badRequest, reason: "a preflight opens no socket")
    }

    func handle(_ exchange: HTTPExchange) {
        guard self.policy.grant(exchange.head) != nil else {
            DoorMetrics.refusedOrigins.increment()
            return exchange.respond(.problem(.forbidden, "pages of this origin may not call this server"))
        }
        // The answer's other fields, the grant among them, are the door's.
        var headers: HTTPHeaders = [
            "access-control-allow-methods": Self.methods, "access-control-max-age": Self.age,
            "vary": "Access-Control-Request-Headers",
        ]
        let asked = exchange.head.headers["access-control-request-headers"].joined(separator: ",")
        // Which fields a call may carry is for its route to say, so that all are allowed that were asked for.
        if !asked.isEmpty, asked.utf8.count <= Self.longestFields, asked.utf8.allSatisfy(Self.isListOfTokens) {
            headers.add(name: "access-control-allow-headers", value: asked)
        }
        exchange.respond(.noContent, headers: headers)
    }

    private static func isListOfTokens(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "-_., ".utf8.contains(byte)
        }
    }
}
