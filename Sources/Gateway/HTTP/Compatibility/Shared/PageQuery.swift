// Carillon · PageQuery.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Protocols
import Storage

/// Which page of an inbox a query asks for.
struct PageQuery: Equatable {
    var offset: Int
    var limit: Int
    var unreadOnly: Bool

    private static let tooFar =
        "must not go beyond \(InboxStore.furthestOffset) notifications; GET /v1/notifications pages on by cursor"

    /// Reads `offset`, `limit` and `unread_only`.
    ///
    /// A larger limit than the largest page counts as that.
    ///
    /// - Throws: `Problem` that names every fault.
    static func byOffset(_ query: RequestQuery) throws -> PageQuery {
        var faults: [JobFault] = []
        let offset = Self.number(query, "offset", fallback: 0, in: 0...Int.max, &faults)
        let limit = Self.number(query, "limit", fallback: 20, in: 1...Int.max, &faults)
        if offset > InboxStore.furthestOffset { faults.append(JobFault("offset", Self.tooFar)) }
        let unreadOnly = Self.flag(query, "unread_only", &faults)
        try Self.finish(faults)
        return PageQuery(offset: offset, limit: min(limit, 100), unreadOnly: unreadOnly)
    }

    /// Reads `page`, which counts from 1, `pageSize` and `unreadOnly`.
    ///
    /// A page below 1 counts as 1, a larger page than the largest as that.
    ///
    /// - Throws: `Problem` that names every fault.
    static func byPage(_ query: RequestQuery) throws -> PageQuery {
        var faults: [JobFault] = []
        let page = max(Self.number(query, "page", fallback: 1, in: Int.min...Int.max, &faults), 1)
        let size = min(Self.number(query, "pageSize", fallback: 20, in: 1...Int.max, &faults), 50)
        // The first comparison keeps the product from overflowing.
        if page - 1 > InboxStore.furthestOffset || (page - 1) * size > InboxStore.furthestOffset {
            faults.append(JobFault("page", Self.tooFar))
        }
        let unreadOnly = Self.flag(query, "unreadOnly", &faults)
        try Self.finish(faults)
        return PageQuery(offset: (page - 1) * size, limit: size, unreadOnly: unreadOnly)
    }

    private static func number(
        _ query: RequestQuery,
        _ name: String,
        fallback: Int,
        in range: ClosedRange<Int>,
        _ faults: inout [JobFault]
    ) -> Int {
        guard let text = query[name] else { return fallback }
        if let number = Int(text), range.contains(number) { return number }
        let bound = range.lowerBound == .min ? "" : " from \(range.lowerBound)"
        faults.append(JobFault(name, "must be a whole number\(bound)"))
        return fallback
    }

    private static func flag(_ query: RequestQuery, _ name: String, _ faults: inout [JobFault]) -> Bool {
        guard let text = query[name] else { return false }
        if let flag = QueryFlag.read(text) { return flag }
        faults.append(JobFault(name, "must be true or false"))
        return false
    }

    private static func finish(_ faults: [JobFault]) throws {
        guard faults.isEmpty else { throw Problem(.unprocessableContent, "the query is at fault", faults: faults) }
    }
}
