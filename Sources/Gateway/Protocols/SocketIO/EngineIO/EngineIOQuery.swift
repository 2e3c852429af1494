// Carillon · EngineIOQuery.swift
// SPDX-License-Identifier: Apache-2.0

/// The query of a request to the protocol's path.
package struct EngineIOQuery: Sendable, Equatable {
    /// The protocol's own names; the cache buster `t` and version 3's `j` and `b64` mean nothing.
    private static let names: Set<String> = ["EIO", "transport", "sid", "t", "j", "b64"]

    private let query: RequestQuery

    package init(_ query: RequestQuery) {
        self.query = query
    }

    /// `EIO`: the protocol's version.
    package var version: String? { self.query["EIO"] }
    package var transport: String? { self.query["transport"] }
    /// The session's id; an empty one is none.
    package var sid: String? { self.query["sid"].flatMap { $0.isEmpty ? nil : $0 } }
    /// The application's own, in their order.
    package var parameters: [RequestQuery.Field] { self.query.fields.filter { !Self.names.contains($0.name) } }
}
