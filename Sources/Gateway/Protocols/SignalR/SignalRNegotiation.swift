// Carillon · SignalRNegotiation.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The answer to `{hub}/negotiate`.
package struct SignalRNegotiation: Sendable, Equatable {
    /// The server's record of an offered connection.
    package struct Offer: Sendable, Equatable {
        /// 0 or 1.
        let version: Int
        /// The secret that the client returns as `id`: the token, or in version 0 the connection's
        /// id.
        package let id: String
        /// Whether the client requested stateful reconnect and gets it.
        package let usesStatefulReconnect: Bool
    }

    /// The time after which an unused offer expires.
    package static let unusedLimit: Milliseconds = 15_000
    /// The highest supported version.
    private static let highestVersion: Int32 = 1

    package let response: SignalRResponse
    /// Nil if the request was refused; the ids are then unused.
    package let offer: Offer?

    /// Answers a request.
    ///
    /// - Parameters:
    ///   - method: anything but POST gets 405.
    ///   - query: the query with names in lower case. `negotiateversion` selects the form of the
    ///     answer; if it is not a number, the body is an error.
    ///   - connectionID: public in version 1, but the secret in version 0, so it must be as hard to
    ///     guess.
    ///   - connectionToken: the secret in version 1.
    ///   - allowsStatefulReconnect: granted if the client asks.
    package init(
        method: String,
        query: RequestQuery,
        connectionID: String,
        connectionToken: String,
        allowsStatefulReconnect: Bool
    ) {
        guard method == "POST" else {
            self.init(.refusal(405))
            return
        }
        var version: Int32 = 0
        if let text = query["negotiateversion"] {
            guard let number = Int32(text) else {
                self.init(error: "The client requested a non-integer protocol version.")
                return
            }
            guard number >= 0 else {
                self.init(
                    error: "The client requested version '\(number)', but the server does not support this version.")
                return
            }
            version = min(number, Self.highestVersion)
        }
        // JavaScript clients fail to start if this comes unrequested.
        let isStateful = allowsStatefulReconnect && Self.asksForStatefulReconnect(query)
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("negotiateVersion", version)
        writer.member("connectionId", connectionID)
        if version > 0 {
            writer.member("connectionToken", connectionToken)
        }
        writer.key("availableTransports")
        writer.beginArray()
        for transport in SignalRTransport.allCases {
            writer.beginObject()
            writer.member("transport", transport.rawValue)
            writer.key("transferFormats")
            writer.beginArray()
            writer.string("Text")
            writer.endArray()
            writer.endObject()
        }
        writer.endArray()
        if isStateful {
            writer.member("useStatefulReconnect", true)
        }
        writer.endObject()
        let id = version > 0 ? connectionToken : connectionID
        self.init(
            SignalRResponse(status: 200, contentType: SignalRResponse.json, body: writer.bytes),
            Offer(version: Int(version), id: id, usesStatefulReconnect: isStateful)
        )
    }

    /// Whether a negotiation's query asks for stateful reconnect.
    package static func asksForStatefulReconnect(_ query: RequestQuery) -> Bool {
        query["usestatefulreconnect"]?.lowercased() == "true"
    }

    private init(_ response: SignalRResponse, _ offer: Offer? = nil) {
        self.response = response
        self.offer = offer
    }

    private init(error: String) {
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("error", error)
        writer.endObject()
        self.init(SignalRResponse(status: 200, contentType: SignalRResponse.json, body: writer.bytes))
    }
}

/// The issue time, which ends the id of a connection with stateful reconnect.
///
/// Lets a node tell an id that another node has just issued from the id of a lost connection.
package enum SignalRIssueTime {
    private static let separator: Character = "."
    private static let radix = 36
    /// The time limit for the first use of an id: clients connect right after the negotiation, but
    /// some networks are slow.
    private static let freshLimit: Milliseconds = 10_000

    /// - Parameter now: the time of a clock that all nodes share.
    package static func stamp(_ id: String, at now: Milliseconds) -> String {
        "\(id)\(Self.separator)\(String(now, radix: Self.radix))"
    }

    /// Whether an id has an issue time.
    package static func isStamped(_ id: String) -> Bool { Self.issued(id) != nil }

    /// Whether an id may still await its first use; true for an id without an issue time.
    package static func isFresh(_ id: String, at now: Milliseconds) -> Bool {
        guard let issued = Self.issued(id) else { return true }
        let (age, overflows) = now.subtractingReportingOverflow(issued)
        return !overflows && age < Self.freshLimit
    }

    private static func issued(_ id: String) -> Milliseconds? {
        guard let separator = id.lastIndex(of: Self.separator) else { return nil }
        return Milliseconds(id[id.index(after: separator)...], radix: Self.radix)
    }
}

/// A complete HTTP answer.
package struct SignalRResponse: Sendable, Equatable {
    package static let plainText = "text/plain"
    static let json = "application/json"

    /// Forbids caching of polls and their answers.
    package static let cacheControl = "no-cache, no-store"

    package let status: Int
    package var contentType = SignalRResponse.plainText
    package var body: [UInt8] = []

    /// Returns a refusal with its reason as text.
    package static func refusal(_ status: Int, _ reason: String = "") -> SignalRResponse {
        SignalRResponse(status: status, body: Array(reason.utf8))
    }

    /// The answer to a request whose id names no connection.
    package static let unknownConnection = Self.refusal(404, "No Connection with that ID")
    /// The answer to a POST with messages.
    package static let sent = SignalRResponse(status: 200)
    /// The answer to a DELETE of a long-polling connection.
    package static let deleted = SignalRResponse(status: 202)
}
