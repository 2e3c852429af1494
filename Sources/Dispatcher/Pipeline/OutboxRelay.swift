// Carillon · OutboxRelay.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import ServiceLifecycle
import Storage

/// Moves the jobs of one database's outbox to their streams, ordered by id within a lane.
///
/// While a lane or an organisation's overflow is full, its jobs stay in the outbox and other jobs
/// pass them. While a master of a cluster is away, its jobs stay, and those of other masters pass
/// them.
///
/// Any number of dispatchers may relay one outbox; a lock lets one move at a time. A row is deleted
/// once Redis has its job. A crash in between appends it twice with the same id, which notifies
/// once.
package struct OutboxRelay: Service {
    private typealias LaneJob = (lane: Lane, fields: [(name: String, value: [UInt8])])

    /// The state that one round leaves to the next.
    private struct Progress {
        var isFailing = false
        /// When the rows were last counted.
        var countedAt: Timestamp
        /// When the oldest row of that count was enqueued; without rows, the time of the count.
        var waitingSince: Timestamp
    }

    /// The rows of a round's first batch; later batches grow up to ``largestBatch``.
    ///
    /// They grow, because each batch reads past rows that were moved before: a long transaction,
    /// such as a dump, keeps those in the index.
    private static let batchSize = 256
    private static let largestBatch = 2_048
    /// NOTIFY only wakes the relay, so poll for what it missed.
    private static let interval: Duration = .seconds(1)

    private let dispatcher: Dispatcher
    private let name: String
    private let configuration: PostgresConfiguration
    private let metrics: OutboxMetrics

    /// - Parameters:
    ///   - name: the database's name in logs and metrics.
    ///   - configuration: how to connect; the relay opens one connection to move and one to listen.
    package init(
        dispatcher: Dispatcher,
        name: String,
        configuration: PostgresConfiguration,
        metrics: any MetricsFactory = MetricsSystem.factory
    ) {
        self.dispatcher = dispatcher
        self.name = name
        var configuration = configuration
        configuration.connections = 1
        configuration.waitsForServer = false
        self.configuration = configuration
        self.metrics = OutboxMetrics(database: name, factory: metrics)
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
                while isRunning {
                    _ = bell.offer(())
                    // A notification may be lost, so look again at an interval.
                    await pause(for: Self.interval)
                }
                bell.finish()
            }
            group.addTask {
                let store = Database(pool).outbox
                let start = self.dispatcher.now()
                var progress = Progress(countedAt: start, waitingSince: start)
                while await bell.next(limit: 1) != nil {
                    await self.relay(store, &progress)
                    // Each round reads past all that waits, so `NOTIFY` must not start the next.
                    if progress.isFailing { await pause(for: Self.interval) }
                }
            }
        }
    }

    /// Moves everything that waits.
    private func relay(_ store: OutboxStore, _ progress: inout Progress) async {
        do {
            if try await self.count(store, &progress) > 0 { try await self.move(store, &progress) }
            if progress.isFailing {
                self.dispatcher.logger.info("outbox relay resumed", metadata: ["outbox": "\(self.name)"])
            }
            progress.isFailing = false
        } catch {
            // Rows may wait unseen, so the age grows as if the oldest known row still waited.
            self.metrics.setAge(waitingSince: progress.waitingSince, now: self.dispatcher.now())
            if !progress.isFailing {
                let hint = (error as? PostgresError)?.sqlState == "42P01" ? "; see dispatcher outbox-sql" : ""
                self.dispatcher.logger.warning(
                    "cannot relay the outbox; retrying every second",
                    metadata: ["outbox": "\(self.name)", "error": "\(error)\(hint)"]
                )
            }
            progress.isFailing = true
        }
    }

    /// Counts the waiting rows for the metrics, and returns their number.
    private func count(_ store: OutboxStore, _ progress: inout Progress) async throws -> Int {
        let backlog = try await store.backlog()
        let now = self.dispatcher.now()
        progress.countedAt = now
        progress.waitingSince = backlog.oldest ?? now
        self.metrics.waiting.set(Int64(backlog.count))
        self.metrics.setAge(waitingSince: progress.waitingSince, now: now)
        return backlog.count
    }

    /// Moves the rows that no full lane or overflow holds back.
    ///
    /// - Throws: also if a master of a cluster did not take its rows; those of the others have
    ///   moved by then.
    private func move(_ store: OutboxStore, _ progress: inout Progress) async throws {
        var waiting = WaitingRows()
        var limit = Self.batchSize
        while isRunning, !waiting.isFull {
            // Under steady load a round has no end, so the metrics cannot wait for the next.
            if abs((self.dispatcher.now() - progress.countedAt) / .seconds(1)) >= 1 {
                _ = try await self.count(store, &progress)
            }
            let held = try await self.held()
            if let held, held.lanes.count == Lane.allCases.count {
                self.metrics.held.increment()
                break
            }
            let count = try await store.move(
                limit: limit,
                leaving: held,
                skipping: waiting.ids
            ) { database, rows in
                // A batch of large rows is short; PostgreSQL need not read many more than that.
                limit = min(rows.count * 2, Self.largestBatch)
                return try await self.append(rows, of: database, &waiting)
            }
            if count != nil { continue }
            if held != nil, try await store.backlog().count > waiting.ids.count { self.metrics.held.increment() }
            break
        }
        if let error = waiting.error { throw error }
    }

    /// Returns the lanes, and the organisations' overflows, that are full; nil for none.
    private func held() async throws -> OutboxStore.Held? {
        let lengths = try await self.dispatcher.live.jobs.lengths()
        let full = lengths.filter { $0.value >= JobStream.highWaterMark }
        // An overflow may be full while its lane is not: a moved flood never fills the lane.
        let orgs = try await self.dispatcher.live.overflows.orgs(withAtLeast: JobStream.highWaterMark)
        guard !full.isEmpty || !orgs.isEmpty else { return nil }
        let types = Dictionary(grouping: self.dispatcher.catalog.all, by: \.lane).mapValues { $0.map(\.name) }
        return OutboxStore.Held(lanes: Set(full.keys), typesByLane: types, orgs: orgs)
    }

    /// Appends the jobs of rows to their streams, and stores dead letters of rows that are no jobs.
    ///
    /// - Parameter waiting: gets the rows that a master of a cluster did not take.
    /// - Returns: the ids of the rows that Redis has.
    /// - Throws: if a single Redis did not take all.
    private func append(
        _ rows: [OutboxStore.Row],
        of database: String,
        _ waiting: inout WaitingRows
    ) async throws -> [Int64] {
        let isCluster = self.dispatcher.redis.isCluster
        let content = self.read(rows, of: database)
        // The rows' transaction is open: after an error, roll back at once and keep the rows.
        try await DeadLetterQueue(dispatcher: self.dispatcher)
            .setAside(content.dead.map { $0.letter }, isPatient: false)
        var moved = content.dead.map { $0.id }
        let streams = self.dispatcher.live.jobs
        var ready: [(id: Int64, stream: String, job: LaneJob)] = []
        for row in content.jobs {
            let stream = streams.stream(for: row.job.lane, row.job.fields)
            if waiting.streams.contains(stream) {
                // Its master may be back by now, but no job passes an earlier one.
                waiting.add(row.id)
            } else {
                ready.append((row.id, stream, row.job))
            }
        }
        let errors = await streams.appendEach(ready.map { (stream: $0.stream, fields: $0.job.fields) })
        for (row, error) in zip(ready, errors) {
            guard let error else {
                moved.append(row.id)
                continue
            }
            guard isCluster else { throw error }
            waiting.add(row.id, of: row.stream, error)
        }
        return moved
    }

    /// Reads rows as jobs, or as dead letters if they are not JSON.
    private func read(
        _ rows: [OutboxStore.Row],
        of database: String
    ) -> (jobs: [(id: Int64, job: LaneJob)], dead: [(id: Int64, letter: DeadLetter)]) {
        var jobs: [(id: Int64, job: LaneJob)] = []
        var dead: [(id: Int64, letter: DeadLetter)] = []
        for row in rows {
            // The time is part of the id, because a restored database reuses row ids.
            let id = "outbox:\(database):\(row.id).\(row.at.microseconds)"
            let milliseconds = row.at.milliseconds
            do throws(JSONFault) {
                let job = try JSONParser.parse(row.fields)
                jobs.append((row.id, self.job(job, id: id, entry: "\(milliseconds)-\(row.id)")))
            } catch {
                let letter = DeadLetter(
                    stream: self.dispatcher.keys.jobs(.normal),
                    // If the job is edited, the ids of its notifications begin with this time.
                    entry: "\(milliseconds)-\(id)",
                    reason: "job: is \(error)",
                    at: self.dispatcher.now(),
                    fields: [("job", row.fields[...])]
                )
                dead.append((row.id, letter))
            }
        }
        return (jobs, dead)
    }

    /// Returns a row's job and its lane; the intake validates the rest.
    ///
    /// A time of day refers to the day on which the job was enqueued, however late it is relayed,
    /// so the row is the job's origin entry.
    private func job(_ value: JSONValue, id: String, entry: String) -> LaneJob {
        var fields = JobFields.flat(value.object ?? [])
        if !fields.contains(where: { $0.name == "id" }) { fields.append(("id", Array(id.utf8))) }
        let own = value["lane"]?.string.flatMap { Lane(rawValue: $0) }
        let type = value["type"]?.string.flatMap { self.dispatcher.catalog[$0] }
        let lane = own ?? type?.lane ?? .normal
        if fields.contains(where: { $0.name == "deliver_local" }) {
            let stream = self.dispatcher.live.jobs.stream(for: lane, fields)
            fields.append((JobOrigin.movedField, Array("\(stream)/\(entry)".utf8)))
        }
        return (lane, fields)
    }
}

/// The rows that masters of a cluster did not take in this round; the next round tries them again.
private struct WaitingRows {
    /// The round ends at this many, because each batch reads past them.
    private static let most = 10_000

    private(set) var ids: [Int64] = []
    /// The streams that did not take a job.
    private(set) var streams: Set<String> = []
    /// The first failure.
    private(set) var error: RedisError?

    var isFull: Bool { self.ids.count >= Self.most }

    mutating func add(_ id: Int64, of stream: String? = nil, _ error: RedisError? = nil) {
        self.ids.append(id)
        if let stream { self.streams.insert(stream) }
        self.error = self.error ?? error
    }
}

/// The metrics of one outbox.
struct OutboxMetrics: Sendable {
    /// Times that a full lane or overflow kept rows in the outbox.
    let held: Counter
    /// Rows that wait.
    let waiting: Meter
    private let age: Meter

    init(database: String, factory: any MetricsFactory) {
        let dimensions = [("database", database)]
        self.held = Counter(label: "carillon.outbox.held", dimensions: dimensions, factory: factory)
        self.waiting = Meter(label: "carillon.outbox.waiting", dimensions: dimensions, factory: factory)
        self.age = Meter(label: "carillon.outbox.age", dimensions: dimensions, factory: factory)
    }

    /// Sets the age by the time at which the oldest row was enqueued.
    func setAge(waitingSince since: Timestamp, now: Timestamp) {
        self.age.set(Double(max(0, (now - since).inMicroseconds)) / 1_000_000)
    }
}
