// Carillon · UserImport.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage

/// Imports users from JSON Lines, one transaction per batch.
///
/// Faulty lines are reported and skipped. The import is idempotent.
package struct UserImport {
    /// The progress so far.
    package struct Tally: Sendable, Equatable {
        /// Lines read, including empty ones.
        package var lines = 0
        /// Lines stored.
        package var users = 0
        package var devices = 0
        package var preferences = 0
        package var subscriptions = 0
        /// Lines skipped.
        package var faulty = 0
    }

    /// A line's bytes, or the reason why it could not be read.
    package enum Line: Sendable {
        case text([UInt8])
        case tooLong
    }

    private static let batchSize = 200
    /// A batch with this many devices is full: PostgreSQL keeps a lock of each token in memory.
    private static let batchDevices = 500
    /// A batch of users with many devices takes thousands of statements.
    private static let batchTimeout: Duration = .seconds(60)
    private static let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

    /// The line up to which all valid lines are stored.
    package private(set) var storedLines = 0

    private let fields: UserFields
    private let store: UserStore
    private let report: (_ line: Int, _ fault: String) -> Void
    private let progress: (Tally) -> Void
    private var tally = Tally()
    private var batch: [UserRecord] = []

    /// - Parameters:
    ///   - report: receives each fault with its line number, from 1.
    ///   - progress: receives the tally after each batch.
    package init(
        fields: UserFields,
        store: UserStore,
        report: @escaping (_ line: Int, _ fault: String) -> Void,
        progress: @escaping (Tally) -> Void
    ) {
        self.fields = fields
        self.store = store
        self.report = report
        self.progress = progress
    }

    /// Adds the next line to the batch; stores the batch once it is full.
    ///
    /// - Throws: the PostgreSQL error if a batch cannot be stored; earlier batches stay.
    package mutating func add(_ line: Line) async throws {
        self.tally.lines += 1
        guard case .text(var bytes) = line else { return self.refuse(["is longer than 1 MB"]) }
        if self.tally.lines == 1, bytes.starts(with: Self.byteOrderMark) {
            bytes.removeFirst(Self.byteOrderMark.count)
        }
        guard !bytes.allSatisfy({ $0 == 0x20 || $0 == 0x09 || $0 == 0x0D }) else { return }
        let value: JSONValue
        do throws(JSONFault) {
            value = try JSONParser.parse(bytes)
        } catch {
            return self.refuse(["is \(error)"])
        }
        do throws(JobFaults) {
            self.batch.append(try self.fields.record(value, user: nil))
        } catch {
            return self.refuse(error.faults.map(\.description))
        }
        let devices = self.batch.reduce(0) { $0 + $1.devices.count }
        if self.batch.count >= Self.batchSize || devices >= Self.batchDevices { try await self.store() }
    }

    /// Stores the last batch and returns the tally.
    package mutating func finish() async throws -> Tally {
        try await self.store()
        return self.tally
    }

    private mutating func refuse(_ faults: [String]) {
        self.tally.faulty += 1
        for fault in faults { self.report(self.tally.lines, fault) }
    }

    private mutating func store() async throws {
        guard !self.batch.isEmpty else { return }
        try await self.storeBatch(triesLeft: 3)
        self.tally.users += self.batch.count
        for record in self.batch {
            self.tally.devices += record.devices.count
            self.tally.preferences += record.preferences.count
            self.tally.subscriptions += record.topics.count
        }
        self.batch = []
        self.storedLines = self.tally.lines
        self.progress(self.tally)
    }

    /// Retries deadlocks: users may register devices during an import, and a token that moves locks
    /// rows of two users.
    private func storeBatch(triesLeft: Int) async throws {
        do {
            _ = try await self.store.put(self.batch, timeout: Self.batchTimeout)
        } catch {
            guard error.sqlState == "40P01", triesLeft > 0 else { throw error }
            try await self.storeBatch(triesLeft: triesLeft - 1)
        }
    }
}
