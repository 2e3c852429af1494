// Carillon · UserImport.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage

/// Brings users in from JSON lines, a batch a transaction.
///
/// A line at fault is reported and left out; the others are stored. Importing a file again changes nothing more.
package struct UserImport {
    /// What was done so far.
    package struct Tally: Sendable, Equatable {
        /// Lines read, empty ones included.
        package var lines = 0
        /// Lines stored.
        package var users = 0
        package var devices = 0
        package var preferences = 0
        package var subscriptions = 0
        /// Lines left out.
        package var faulty = 0
    }

    /// A line of the file: its bytes, or why it could not be read.
    package enum Line: Sendable {
        case text([UInt8])
        case tooLong
    }

    private static let batchSize = 200

    private let fields: UserFields
    private let store: UserStore
    private let report: (_ line: Int, _ fault: JobFault) -> Void
    private let progress: (Tally) -> Void
    private var tally = Tally()
    private var batch: [UserRecord] = []

    /// - Parameters:
    ///   - report: told each fault, with the number of its line, from 1.
    ///   - progress: told the tally after each batch.
    package init(
        fields: UserFields,
        store: UserStore,
        report: @escaping (_ line: Int, _ fault: JobFault) -> Void,
        progress: @escaping (Tally) -> Void
    ) {
        self.fields = fields
        self.store = store
        self.report = report
        self.progress = progress
    }

    /// Takes the next line.
    ///
    /// - Throws: what PostgreSQL says if a batch cannot be stored; what was stored before stays.
    package mutating func take(_ line: Line) async throws {
        self.tally.lines += 1
        guard case .text(let bytes) = line else { return self.refuse([JobFault("line", "is longer than 1 MB")]) }
        guard !bytes.allSatisfy({ $0 == 0x20 || $0 == 0x09 || $0 == 0x0D }) else { return }
        let value: JSONValue
        do throws(JSONFault) {
            value = try JSONParser.parse(bytes)
        } catch {
            return self.refuse([JobFault("line", "is \(error)")])
        }
        do throws(JobFaults) {
            self.batch.append(try self.fields.record(value, user: nil))
        } catch {
            return self.refuse(error.faults)
        }
        if self.batch.count >= Self.batchSize { try await self.store() }
    }

    /// Stores what is left and tells what was done.
    package mutating func finish() async throws -> Tally {
        try await self.store()
        return self.tally
    }

    private mutating func refuse(_ faults: [JobFault]) {
        self.tally.faulty += 1
        for fault in faults { self.report(self.tally.lines, fault) }
    }

    private mutating func store() async throws {
        guard !self.batch.isEmpty else { return }
        try await self.put(triesLeft: 3)
        self.tally.users += self.batch.count
        for record in self.batch {
            self.tally.devices += record.devices.count
            self.tally.preferences += record.preferences.count
            self.tally.subscriptions += record.topics.count
        }
        self.batch = []
        self.progress(self.tally)
    }

    /// Importing users while they register devices may deadlock on a token that moves; PostgreSQL ends one of the two.
    private func put(triesLeft: Int) async throws {
        do {
            _ = try await self.store.put(self.batch)
        } catch {
            guard error.sqlState == "40P01", triesLeft > 0 else { throw error }
            try await self.put(triesLeft: triesLeft - 1)
        }
    }
}
