// Carillon · ServerConnection.swift
// SPDX-License-Identifier: Apache-2.0

import CLibpq
import COpenSSL
import DequeModule

/// One libpq connection in pipeline mode, used only by the database thread.
final class ServerConnection {
    private enum Expected {
        /// The text of a named statement; nil for an unnamed one.
        case prepared(sql: String?)
        case result
        case sync
    }

    /// A segment that was sent.
    private struct Flight {
        let segment: Segment
        var results: [PostgresResult] = []
        var error: PostgresError?
        /// Whether its caller got a timeout already.
        var hasTimedOut = false
    }

    /// SQLSTATEs after which only a new session helps: the plan no longer fits its tables
    /// (feature_not_supported), the server lost it (invalid_sql_statement_name), or the server is
    /// now a standby (read_only_sql_transaction).
    private static let endsSession: Set<String> = ["0A000", "26000", "25006"]

    // libpq's connection; only the database thread touches it, and `deinit` closes it.
    private let pointer: OpaquePointer
    /// Kept here because libpq forgets it when it closes a broken connection.
    let socket: CInt
    private var expected: Deque<Expected> = []
    private var flights: Deque<Flight> = []
    /// Since when the server runs the first segment.
    private var firstSince = ContinuousClock.now
    private var headHasResult = false
    /// The names of the statements that the server has prepared, by text.
    private var prepared: [String: String] = [:]
    /// The statements that the server has not confirmed, with the segment that prepares them.
    private var preparing: [String: (name: String, segment: UInt64)] = [:]
    private var preparedCount = 0
    private var parameterBytes: [UInt8] = []

    /// The transaction that has reserved this connection.
    var holder: TransactionKey?
    /// The segment whose cancel request is in flight.
    var cancelled: UInt64?
    private(set) var isBroken = false
    /// Whether to watch the socket for room to write.
    private(set) var wantsWrite = false

    /// Takes ownership of an open, idle connection.
    init?(_ pointer: OpaquePointer) {
        guard PQsetnonblocking(pointer, 1) == 0, PQenterPipelineMode(pointer) == 1 else {
            PQfinish(pointer)
            return nil
        }
        self.pointer = pointer
        self.socket = PQsocket(pointer)
    }

    deinit {
        PQfinish(self.pointer)
    }

    var inFlight: Int { self.flights.count }

    /// Whether the first segment has been running since `moment` or earlier.
    func isSlow(since moment: ContinuousClock.Instant) -> Bool {
        !self.flights.isEmpty && self.firstSince <= moment
    }

    /// Orders connections by how soon they may answer a further segment: idle ones come first, and
    /// slow ones last.
    func load(slowSince: ContinuousClock.Instant) -> (Int, Int) {
        (self.isSlow(since: slowSince) ? 1 : 0, self.flights.count)
    }

    /// Whether its segment must have no others behind it.
    var isTakenAlone: Bool {
        self.flights.first?.segment.lease.isAlone ?? false
    }

    /// Whether the server has had time to answer the first segment, and did not.
    ///
    /// - Parameter limit: the time that a segment gets before its connection, and the segments
    ///   behind it, are given up.
    func isStalled(_ now: ContinuousClock.Instant, limit: Duration) -> Bool {
        guard let first = self.flights.first, first.segment.deadline <= now else { return false }
        if self.flights.count == 1, !first.hasTimedOut { return true }
        // The segments behind it would be lost too, and the server may have begun it late.
        return self.firstSince + limit <= now
    }

    var firstSegment: UInt64? { self.flights.first?.segment.identifier }

    func send(_ segment: Segment) {
        if self.flights.isEmpty { self.firstSince = .now }
        self.flights.append(Flight(segment: segment))
        for statement in segment.statements {
            guard self.send(statement, of: segment.identifier) else {
                self.isBroken = true
                return
            }
        }
        self.expected.append(.sync)
        guard PQpipelineSync(self.pointer) == 1 else {
            self.isBroken = true
            return
        }
        self.flush()
    }

    private func send(_ statement: PostgresStatement, of segment: UInt64) -> Bool {
        guard let name = self.prepare(statement, of: segment) else { return false }
        self.parameterBytes.removeAll(keepingCapacity: true)
        var ranges: [Range<Int>?] = []
        ranges.reserveCapacity(statement.parameters.count)
        for parameter in statement.parameters {
            let start = self.parameterBytes.count
            let isPresent = parameter.encode(into: &self.parameterBytes)
            ranges.append(isPresent ? start..<self.parameterBytes.count : nil)
        }
        // libpq takes an empty value at a null pointer for a null, so the buffer must have an
        // address.
        if self.parameterBytes.isEmpty { self.parameterBytes.append(0) }
        let sent = self.parameterBytes.withUnsafeBytes { bytes in
            // Borrowing is sound: libpq copies the values into its output buffer during the call.
            let base = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
            let values = ranges.map { range in range.flatMap { base?.advanced(by: $0.lowerBound) } }
            let lengths = ranges.map { CInt($0?.count ?? 0) }
            let formats = [CInt](repeating: 1, count: ranges.count)
            return PQsendQueryPrepared(self.pointer, name, CInt(values.count), values, lengths, formats, 1)
        }
        self.expected.append(.result)
        return sent == 1
    }

    /// Prepares a statement unless it is known; returns its name, or nil if nothing could be sent.
    ///
    /// While another segment prepares the same text, this one uses the unnamed statement: if the
    /// other fails before, the name will not exist.
    private func prepare(_ statement: PostgresStatement, of segment: UInt64) -> String? {
        let sql = statement.sql
        if let name = self.prepared[sql] { return name }
        let pending = self.preparing[sql]
        if let pending, pending.segment == segment { return pending.name }
        let name = pending == nil ? "s\(self.preparedCount)" : ""
        let types = statement.parameters.map { Oid($0.typeIdentifier) }
        guard PQsendPrepare(self.pointer, name, sql, CInt(types.count), types) == 1 else { return nil }
        if pending == nil {
            self.preparedCount += 1
            self.preparing[sql] = (name, segment)
        }
        self.expected.append(.prepared(sql: pending == nil ? sql : nil))
        return name
    }

    /// Lets the pool drop the connection, because the state of its session is unknown.
    func retire() {
        self.isBroken = true
    }

    /// Writes libpq's output buffer.
    func flush() {
        switch PQflush(self.pointer) {
        case 0: self.wantsWrite = false
        case 1: self.wantsWrite = true
        default: self.isBroken = true
        }
    }

    /// Reads the input and completes every finished segment.
    func read(_ complete: (Segment, Result<[PostgresResult], PostgresError>) -> Void) {
        guard ConnectionInput.read(self.pointer) else {
            self.isBroken = true
            return
        }
        if self.wantsWrite { self.flush() }
        while let head = self.expected.first, PQisBusy(self.pointer) == 0 {
            guard let result = PQgetResult(self.pointer) else {
                // Null ends a statement's results.
                guard self.headHasResult else { return }
                self.headHasResult = false
                // A failed commit answers the sync with an error; the sync's own result follows.
                if case .sync = head { continue }
                self.expected.removeFirst()
                continue
            }
            if PQresultStatus(result) == PGRES_PIPELINE_SYNC {
                PQclear(result)
                self.expected.removeFirst()
                let flight = self.flights.popFirst()
                self.firstSince = .now
                guard let flight, !flight.hasTimedOut else { continue }
                complete(flight.segment, flight.error.map { .failure($0) } ?? .success(flight.results))
            } else {
                self.headHasResult = true
                self.receive(result, for: head)
            }
        }
    }

    private func receive(_ result: OpaquePointer, for head: Expected) {
        switch PQresultStatus(result) {
        case PGRES_TUPLES_OK, PGRES_COMMAND_OK:
            switch head {
            case .result: self.flights[0].results.append(PostgresResult(result))
            case .prepared(let sql):
                PQclear(result)
                if let sql { self.prepared[sql] = self.preparing.removeValue(forKey: sql)?.name }
            case .sync: PQclear(result)
            }
            return
        case PGRES_PIPELINE_ABORTED: break
        default:
            let error = PostgresError(result: result)
            self.flights[0].error = self.flights[0].error ?? error
            if let state = error.sqlState, Self.endsSession.contains(state) { self.isBroken = true }
        }
        PQclear(result)
        if case .prepared(let sql?) = head { self.preparing[sql] = nil }
    }

    /// Returns the overdue segments; they still run, but no caller waits for them.
    func expireOverdue(_ now: ContinuousClock.Instant) -> [Segment] {
        var overdue: [Segment] = []
        for index in self.flights.indices {
            guard !self.flights[index].hasTimedOut, self.flights[index].segment.deadline <= now else { continue }
            self.flights[index].hasTimedOut = true
            overdue.append(self.flights[index].segment)
        }
        return overdue
    }

    /// Removes all segments and returns those whose callers still wait, with the error of one that
    /// the server has refused already.
    func abandon() -> [(segment: Segment, error: PostgresError?)] {
        defer { self.flights = [] }
        return self.flights.filter { !$0.hasTimedOut }.map { ($0.segment, $0.error) }
    }

    /// Returns a handle that cancels the running statement from any thread.
    func cancelHandle() -> CancelHandle? {
        PQgetCancel(self.pointer).map { CancelHandle($0) }
    }
}

/// The input of a libpq connection.
enum ConnectionInput {
    /// Reads what has arrived, without blocking; false if the connection is broken.
    ///
    /// OpenSSL keeps the rest of a TLS record that is larger than libpq's buffer. The socket does
    /// not signal it, so it is read here.
    static func read(_ connection: OpaquePointer) -> Bool {
        repeat {
            guard PQconsumeInput(connection) == 1 else { return false }
        } while Self.hasRest(connection)
        return true
    }

    private static func hasRest(_ connection: OpaquePointer) -> Bool {
        guard let session = PQsslStruct(connection, "OpenSSL") else { return false }
        // Sound: under this name libpq gives its `SSL *`, or null without TLS.
        return SSL_pending(OpaquePointer(session)) > 0
    }
}

/// Asks the server to cancel the running statement of a connection.
///
/// `@unchecked Sendable` is sound: libpq documents that another thread may use a cancel object; it
/// is used once and freed in `deinit`.
final class CancelHandle: @unchecked Sendable {
    private let pointer: OpaquePointer

    init(_ pointer: OpaquePointer) {
        self.pointer = pointer
    }

    deinit {
        PQfreeCancel(self.pointer)
    }

    /// Blocks until the server has the request.
    func cancel() {
        var text = [CChar](repeating: 0, count: 256)
        _ = PQcancel(self.pointer, &text, CInt(text.count))
    }
}
