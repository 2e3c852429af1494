// Carillon · EveryRule.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation

/// A type and users for whom every rule has something to look at, and none holds anything back: a template in the user's
/// language, a cap, a preference, and quiet hours that are not now.
enum EveryRule {
    static let type = "every_rule"

    /// What a job gives in place of a text.
    static let variables = #"{"payer":"Ada","amount":"EUR 40","invoice":{"number":"i9"}}"#

    private static let catalog = """
        types:
          \(Self.type):
            severity: info
            category: billing
            delivery: push
            quiet_hours: defer
            cap: {count: 10000, per: 1h}
            templates:
              en: {title: "{{amount}} from {{payer}}", body: "Invoice {{invoice.number}}{{#note}}: {{note}}{{/note}}"}
              de: {title: "{{amount}} von {{payer}}", body: "Rechnung {{invoice.number}}{{#note}}: {{note}}{{/note}}"}
        """

    /// The settings of services that know the type.
    static func settings(in folder: String) throws -> [String: String] {
        let path = folder + "/every-rule.yaml"
        try Self.catalog.write(toFile: path, atomically: true, encoding: .utf8)
        return ["CATALOG": path]
    }

    /// Stores what the users want; their quiet hours begin in six hours or so.
    static func prepare(_ users: [String], in pool: PostgresPool) async throws {
        let minutes = Int32(Date.now.timeIntervalSince1970 / 60) % 1_440
        try await pool.run([
            PostgresStatement(
                """
                INSERT INTO carillon.user_settings (user_id, zone, locale, quiet_start, quiet_end)
                SELECT unnest($1), 'Europe/Berlin', 'de', $2::int4, $3::int4
                """,
                [
                    .array(PostgresArray(texts: users)), .int4((minutes + 360) % 1_440), .int4((minutes + 480) % 1_440),
                ]
            ),
            PostgresStatement(
                """
                INSERT INTO carillon.preferences (user_id, type, in_app, push, email)
                SELECT unnest($1), '\(Self.type)', true, true, false
                """,
                [.array(PostgresArray(texts: users))]
            ),
        ])
    }
}
