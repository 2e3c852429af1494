// Carillon · Stack+Catalog.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import Support

extension Stack {
    /// Writes or replaces the stack's own catalog and returns the setting that names it.
    @discardableResult
    func catalog(_ text: String) throws -> [String: String] {
        let path = self.directory.file("catalog.yaml")
        try Data(text.utf8).write(to: URL(filePath: path), options: .atomic)
        return ["CATALOG": path]
    }

    /// A user's titles and bodies, oldest first.
    func texts(user: String) async throws -> [[String]] {
        let rows = try await self.query(
            "SELECT title, body FROM carillon.notifications WHERE user_id = $1 ORDER BY id", .text(user))
        return try rows.map { [try $0.text(0), try $0.text(1)] }
    }
}
