// Carillon · SignalRNegotiation.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The answer to `{hub}/negotiate`.
package struct SignalRNegotiation: Sendable, Equatable {
    /// What the server remembers about a connection that it offered.
    package struct Offer: Sendable, Equatable {
        /// 0 or 1.
        package let version: Int
        /// The secret under which the client comes back (`id`): the token, or in version 0 the connection's id.
        package let id: String
        /// The client asked for it and gets it.
        package let usesStatefulReconnect: Bool
    }

    /// How long an offer waits for its client before it is dropped, in milliseconds.
    package static let unusedLimit: Int64 = 15_000
    /// The highest version that is spoken.
    private static let highestVersion: Int32 = 1

    package let response: SignalRResponse
    /// Nil if the request was refused; then the ids are not used.
    package let offer: Offer?

    /// Answers a request.
    ///
    /// - Parameters:
    ///   - method: POST, or the answer is 405.
    ///   - query: With names in lower case. `negotiateversion` chooses the answer's form; one that
    ///     is no number gets an error as body.
    ///   - transports: What is offered, the preferred first.
    ///   - connectionID: Public in version 1; the secret in version 0, so that it must be as hard to guess.
    ///   - connectionToken: The secret in version 1.
    ///   - allowsStatefulReconnect: Granted if the client asks and WebSockets are offered.
    package init(
        method: String,
        query: RequestQuery,
        transports: [SignalRTransport],
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
        // JavaScript clients fail to start if this comes without having been asked for.
        let isStateful =
            allowsStatefulReconnect && transports.contains(.webSockets)
            && query["usestatefulreconnect"]?.lowercased() == "true"
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("negotiateVersion", version)
        writer.member("connectionId", connectionID)
        if version > 0 {
            writer.member("connectionToken", connectionToken)
        }
        writer.key("availableTransports")
        writer.beginArray()
        for transport in transports {
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
