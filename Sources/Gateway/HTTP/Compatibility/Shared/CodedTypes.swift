// Carillon · CodedTypes.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The catalog's types that have an integer code, for clients that know types by number.
struct CodedTypes: Sendable {
    /// By code, the least first.
    let all: [(code: Int, type: NotificationType)]
    private let byCode: [Int: NotificationType]

    init(_ types: [NotificationType]) {
        self.all = types.compactMap { type in type.code.map { ($0, type) } }.sorted { $0.code < $1.code }
        self.byCode = Dictionary(self.all.map { ($0.code, $0.type) }) { first, _ in first }
    }

    subscript(_ code: Int) -> NotificationType? { self.byCode[code] }

    /// The type of a number, or of a name in any case, as ASP.NET reads an enum from a query.
    func find(_ text: some StringProtocol) -> NotificationType? {
        if let code = Int(text) { return self.byCode[code] }
        let name = text.lowercased()
        return self.all.first { $0.type.name.lowercased() == name }?.type
    }
}
