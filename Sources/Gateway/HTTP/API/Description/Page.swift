// Carillon · Page.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A page of a list.
struct Page<Element> {
    let items: ArraySlice<Element>
    /// Where the next page begins; nil for the last one.
    let next: String?

    init(_ items: ArraySlice<Element>, next: String?) {
        self.items = items
        self.next = next
    }

    /// - Parameter rows: one more than `limit` if there is another page, which begins after the id
    ///   of this page's last row.
    init(_ rows: [Element], limit: Int, id: (Element) -> Identifier) {
        self.items = rows.prefix(limit)
        self.next = rows.count > limit ? id(rows[limit - 1]).description : nil
    }

    func map<Other>(_ transform: (Element) -> Other) -> Page<Other> {
        Page<Other>(self.items.map(transform)[...], next: self.next)
    }
}

extension Shape {
    /// A page of at most 100 objects.
    static func page<Element>(
        _ name: StaticString,
        of shape: Shape<Element>,
        cursor: Schema = .string
    ) -> Shape where Value == Page<Element> {
        [name: .list(of: shape, max: 100) { $0.items }, "next_cursor": .value(cursor) { $0.next }]
    }
}
