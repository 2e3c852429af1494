// Carillon · OutboxSQLCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Operations
import Storage

/// `dispatcher outbox-sql`.
struct OutboxSQLCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "outbox-sql",
        abstract: "Prints the SQL that gives a database an outbox.",
        discussion: """
            For databases other than Carillon's own, which has one. May be run again.

            Examples:
              dispatcher outbox-sql | psql -v ON_ERROR_STOP=1 postgresql://owner@host/shop
            """
    )

    func run() async throws {
        Terminal.line(Migrations.outboxScript)
    }
}
