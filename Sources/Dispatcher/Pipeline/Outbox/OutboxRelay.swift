// Carillon · OutboxRelay.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Storage

/// Moves the jobs of one database's outbox to their streams, in the order of their ids within a lane.
///
/// While a lane is full, its jobs wait where they are, and those of other lanes go past them.
///
/// Any number of dispatchers may do so: whoever has the outbox's lock moves a batch, and the others find nothing to do. A
/// row is deleted when Redis has its job; a crash in between appends it again, with the same id, which makes it once.
package struct OutboxRelay: Service {
    private static let batchSize = 256
    /// NOTIFY only wakes the relay; what it missed is found this much later.
    private static let interval: Duration = .seconds(1)

    private let dispatcher: Dispatcher
    private let name: String
    private let configuration: PostgresConfiguration
    private let metrics: OutboxMetrics

    /// - Parameters:
    ///   - name: what logs and metrics call the database.
    ///   - configuration: how to reach it; the relay has a connection of its own, and one to listen on.
    package init(dispatcher: Dispatcher, name: String, configuration: PostgresConfiguration) {
        self.dispatcher = dispatcher
        self.name = name
        var configuration = configuration
        configuration.connections = 1
        self.configuration = configuration
        self.metrics = OutboxMetrics(database: name)
    }

    package func run() async throws {
        let pool = try PostgresPool(self.configuration, logger: self.dispatcher.logger)
        defer { pool.close() }
        let bell = BatchQueue<Void>(capacity: 1)
        let listener = try PostgresListener(
            self.configuration,
            channels: ["carillon_outbox"],
            logger: self.dispatcher.logger
        ) { _ in _ = bell.offer(()) }
        defer { listener.close() }
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                while goesOn {
                    _ = bell.offer(())
                    await pause(for: Self.interval)
                }
                bell.finish()
            }
            group.addTask {
                let store = Database(pool).outbox
                var isFailing = false
                while await bell.next(limit: 1) != nil { await self.relay(store, &isFailing) }
            }
        }
    }

    /// Moves all that waits.
    private func relay(_ store: OutboxStore, _ isFailing: inout Bool) async {
        do {
            let backlog = try await store.backlog()
            self.metrics.note(backlog, now: self.dispatcher.now())
            if backlog.count > 0 { try await self.move(store) }
            if isFailing {
                self.dispatcher.logger.info("outbox is relayed again", metadata: ["outbox": "\(self.name)"])
            }
            isFailing = false
        } catch {
            if !isFailing {
                let hint = (error as? PostgresError)?.sqlState == "42P01" ? "; see dispatcher outbox-sql" : ""
                self.dispatcher.logger.warning(
                    "outbox cannot be relayed",
                    metadata: ["outbox": "\(self.name)", "error": "\(error)\(hint)"]
                )
            }
            isFailing = true
        }
    }

    /// Moves all that waits and whose lane is not full.
    private func move(_ store: OutboxStore) async throws {
        while goesOn {
            let held = try await self.held()
            if let held, held.lanes.count == Lane.allCases.count { return self.metrics.held.increment() }
            let count = try await store.move(limit: Self.batchSize, leaving: held) { database, rows in
                try await self.append(rows, of: database)
            }
            self.metrics.moved.increment(by: count)
            guard count == 0 else { continue }
            if held != nil, try await store.backlog().count > 0 { self.metrics.held.increment() }
            return
        }
    }

    /// What has to stay where it is; nil if no lane is full.
    private func held() async throws -> OutboxStore.Held? {
        let lengths = try await self.dispatcher.live.jobs.lengths()
        let full = lengths.filter { $0.value >= JobStream.highWaterMark }
        guard !full.isEmpty else { return nil }
        let types = Dictionary(grouping: self.dispatcher.catalog.all, by: \.lane).mapValues { $0.map(\.name) }
        return OutboxStore.Held(lanes: Set(full.keys), typesByLane: types)
    }

    /// Returns when Redis has all of them.
    private func append(_ rows: [OutboxStore.Row], of database: String) async throws {
        let content = self.read(rows, of: database)
        // The rows' transaction is open: without Redis they stay where they are, and it ends.
        try await DeadLetterOffice(dispatcher: self.dispatcher).setAside(content.dead, isPatient: false)
        guard !content.jobs.isEmpty else { return }
        let stream = self.dispatcher.live.jobs
        _ = try await stream.append(content.jobs)
    }

    /// What rows hold: jobs, and what is none.
    private func read(
        _ rows: [OutboxStore.Row],
        of database: String
    ) -> (jobs: [(lane: Lane, fields: [(name: String, value: [UInt8])])], dead: [DeadLetter]) {
        var jobs: [(lane: Lane, fields: [(name: String, value: [UInt8])])] = []
        var dead: [DeadLetter] = []
        for row in rows {
            // The time as well: a database that was restored to an earlier day gives ids out again.
            let id = "outbox:\(database):\(row.id).\(row.at.microseconds)"
            do throws(JSONFault) {
                jobs.append(self.job(try JSONParser.parse(row.fields), id: id))
            } catch {
                dead.append(
                    DeadLetter(
                        stream: self.dispatcher.keys.jobs(.normal),
                        entry: id,
                        reason: "job: is \(error)",
                        at: self.dispatcher.now(),
                        fields: [("job", row.fields[...])]
                    )
                )
            }
        }
        return (jobs, dead)
    }

    /// The lane is the job's, or else its type's; what else may be wrong with it is the intake's to say.
    private func job(_ value: JSONValue, id: String) -> (lane: Lane, fields: [(name: String, value: [UInt8])]) {
        var fields = JobFields.flat(value.object ?? [])
        if !fields.contains(where: { $0.name == "id" }) { fields.append(("id", Array(id.utf8))) }
        let own = value["lane"]?.string.flatMap { Lane(rawValue: $0) }
        let type = value["type"]?.string.flatMap { self.dispatcher.catalog[$0] }
        return (own ?? type?.lane ?? .normal, fields)
    }
}
