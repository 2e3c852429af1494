// Carillon · PageQuery.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols
import Storage

/// The page of an inbox that a query requests.
struct PageQuery: Equatable {
    var offset: Int
    var limit: Int
    var unreadOnly: Bool

    private static let tooFar =
        "must not exceed \(InboxStore.furthestOffset) notifications; use the cursor of GET /v1/notifications"

    /// Reads `offset`, `limit` and `unread_only`.
    ///
    /// A limit above the largest is reduced to it.
    ///
    /// - Throws: `Problem` with every fault.
    static func byOffset(_ query: RequestQuery) throws -> PageQuery {
        var fields = FieldReader(lenient: query)
        let offset = fields.integer("offset", in: 0...Int64.max) ?? 0
        let limit = fields.integer("limit", in: 1...Int64.max) ?? 20
        if offset > InboxStore.furthestOffset { fields.fault("offset", Self.tooFar) }
        let unreadOnly = fields.flag("unread_only") ?? false
        try fields.finish()
        return PageQuery(offset: Int(offset), limit: Int(min(limit, 1_000)), unreadOnly: unreadOnly)
    }

    /// Reads `page` (from 1), `pageSize` and `unreadOnly`.
    ///
    /// A page below 1 counts as 1; a size above the largest is reduced to it.
    ///
    /// - Throws: `Problem` with every fault.
    static func byPage(_ query: RequestQuery) throws -> PageQuery {
        var fields = FieldReader(lenient: query)
        let page = Int(max(fields.integer("page") ?? 1, 1))
        let size = Int(min(fields.integer("pageSize", in: 1...Int64.max) ?? 20, 50))
        // The first comparison prevents an overflow of the product.
        if page - 1 > InboxStore.furthestOffset || (page - 1) * size > InboxStore.furthestOffset {
            fields.fault("page", Self.tooFar)
        }
        let unreadOnly = fields.flag("unreadOnly") ?? false
        try fields.finish()
        return PageQuery(offset: (page - 1) * size, limit: size, unreadOnly: unreadOnly)
    }

    /// Whether the page that begins `count` notifications later has any, and is not refused.
    func hasMore(after count: Int, of page: InboxStore.OffsetPage) -> Bool {
        let next = self.offset + count
        return next < Int(page.matching) && next <= InboxStore.furthestOffset
    }
}

/// Times of day in minutes after midnight.
enum WallClock {
    /// Returns `22:00:00`, the format of databases and .NET.
    static func text(_ minutes: Int) -> String { "\(LocalTime(minutes: minutes) ?? .midnight):00" }

    /// Parses `22:00`, `22:00:00` or `22:00:00.0000000` into minutes after midnight.
    ///
    /// Seconds must be zero; nil if the text is invalid.
    static func minutes(_ text: String) -> Int? {
        let seconds = text.dropFirst(5)
        guard seconds.isEmpty || seconds.hasPrefix(":00"), seconds.dropFirst().allSatisfy({ $0 == "0" || $0 == "." })
        else { return nil }
        return LocalTime(text.prefix(5))?.minutes
    }
}

extension FieldReader {
    /// Returns a time of day in minutes; nil if it is absent, an inner nil if it is null or empty.
    mutating func time(_ name: String) -> Int?? {
        guard self.value[name] != nil else { return nil }
        guard let text = self.text(name, limit: 16) else { return .some(nil) }
        if let minutes = WallClock.minutes(text) { return minutes }
        self.fault(name, "must be a time such as 22:00 or 22:00:00")
        return nil
    }
}
