// Carillon · InboxTag.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import Storage

/// The entity tag of what is read from an inbox (RFC 9110 section 8.8.3): its version, unread, total and notes.
///
/// The counts stand beside the version so that an inbox which was erased and begun anew is not taken for its predecessor.
enum InboxTag {
    static func text(_ state: InboxStore.State) -> String {
        "\"\(state.version)-\(state.unread)-\(state.total)-\(state.notes)\""
    }

    /// The state that the request's `If-None-Match` names; nil if it names none of ours.
    static func known(_ request: Request) -> InboxStore.State? {
        guard let header = request.headers[.ifNoneMatch] else { return nil }
        for candidate in header.split(separator: ",") {
            var tag = candidate.drop { $0 == " " }
            // The comparison is weak (RFC 9110 section 13.1.2), and proxies weaken tags when they compress.
            if tag.hasPrefix("W/") { tag = tag.dropFirst(2) }
            let parts = tag.filter { $0 != "\"" && $0 != " " }.split(separator: "-")
            guard parts.count == 4, let version = Int64(parts[0]), let unread = Int32(parts[1]),
                let total = Int32(parts[2]), let notes = Int64(parts[3])
            else { continue }
            var state = InboxStore.State()
            state.version = version
            state.unread = unread
            state.total = total
            state.notes = notes
            return state
        }
        return nil
    }

    /// 304 where the inbox stands as the client has it, else what `make` makes, with the tag.
    static func answer(
        _ state: InboxStore.State,
        unless known: InboxStore.State?,
        _ make: () throws -> Response
    ) rethrows -> Response {
        let isKnown = known.map { state.showsSame(as: $0) } ?? false
        var response = isKnown ? Response(status: .notModified) : try make()
        response.headers[.eTag] = Self.text(state)
        response.headers[.cacheControl] = "private, no-cache"
        return response
    }
}
