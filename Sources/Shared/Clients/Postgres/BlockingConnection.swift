// Carillon · BlockingConnection.swift
// SPDX-License-Identifier: Apache-2.0

import CLibpq
import Core
import Glibc

/// A libpq connection with blocking calls, for connecting and for scripts; use it on a thread of
/// its own.
///
/// `@unchecked Sendable` is sound: one thread creates it and hands it over whole; two threads never
/// use it at once.
package final class BlockingConnection: @unchecked Sendable {
    /// How soon the server ends the session of a client that has vanished, and releases its locks.
    ///
    /// The server's default is two hours. It ignores these settings on Unix sockets.
    private static let serverKeepalives: [(name: String, value: String)] = [
        ("tcp_keepalives_idle", "30"),
        ("tcp_keepalives_interval", "10"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "15000"),
    ]

    private var pointer: OpaquePointer?
    /// The time by which the server must have answered; nil for no limit.
    private var deadline: ContinuousClock.Instant?

    private init(_ pointer: OpaquePointer) {
        self.pointer = pointer
    }

    deinit {
        if let pointer { PQfinish(pointer) }
    }

    /// Whether libpq can read a connection string.
    ///
    /// libpq's own error would repeat the string, and with it the password.
    package static func isReadable(_ connectionString: String) -> Bool {
        guard let options = PQconninfoParse(connectionString, nil) else { return false }
        PQconninfoFree(options)
        return true
    }

    /// Connects and prepares the session.
    ///
    /// Blocks for the connect timeout at most, and after the login for the time limit of a call: a
    /// stalled pooler accepts sessions that it does not answer.
    ///
    /// - Parameter script: statements that end the preparation.
    static func open(
        _ configuration: PostgresConfiguration,
        script: String = ""
    ) -> Result<BlockingConnection, PostgresError> {
        guard Self.isReadable(configuration.connectionString) else {
            return .failure(PostgresError(.unavailable, "the connection string cannot be read"))
        }
        _ = CryptoLibrary.isReady
        // `dbname` comes first and is expanded, so the later keys override the connection string.
        let statementTimeout = configuration.timeout.inMilliseconds * 9 / 10
        let parameters: [(String, String)] = [
            ("dbname", configuration.connectionString),
            ("application_name", configuration.applicationName),
            ("connect_timeout", String(max(2, configuration.connectTimeout.components.seconds))),
            ("client_encoding", "UTF8"),
            ("gssencmode", "disable"),
            ("keepalives_idle", "30"),
            ("keepalives_interval", "10"),
            ("tcp_user_timeout", "15000"),
            ("target_session_attrs", configuration.wantsStandby ? "standby" : "read-write"),
        ]
        var keys: [UnsafeMutablePointer<CChar>?] = parameters.map { strdup($0.0) }
        var values: [UnsafeMutablePointer<CChar>?] = parameters.map { strdup($0.1) }
        defer {
            for pointer in keys + values { free(pointer) }
        }
        keys.append(nil)
        values.append(nil)
        let pointer = keys.withUnsafeBufferPointer { keys in
            values.withUnsafeBufferPointer { values in
                // Rebinding is sound: it only adds `const`. Both arrays end with a null and outlive
                // the call.
                keys.withMemoryRebound(to: UnsafePointer<CChar>?.self) { keys in
                    values.withMemoryRebound(to: UnsafePointer<CChar>?.self) { values in
                        PQconnectdbParams(keys.baseAddress, values.baseAddress, 1)
                    }
                }
            }
        }
        guard let pointer else { return .failure(PostgresError(.unavailable, "no memory for a connection")) }
        let connection = BlockingConnection(pointer)
        guard PQstatus(pointer) == CONNECTION_OK else {
            return .failure(PostgresError(.unavailable, Self.reason(pointer)))
        }
        // libpq prints notices by default to standard error; they may repeat values.
        PQsetNoticeReceiver(pointer, { _, _ in }, nil)
        do throws(PostgresError) {
            let settings = (Self.serverKeepalives + configuration.sessionSettings)
                .map { "SET \($0.name) = '\($0.value)';" }.joined()
            connection.deadline = ContinuousClock.now + configuration.timeout
            try connection.execute("SET statement_timeout = \(statementTimeout);" + settings)
            try configuration.prepare?(connection)
            if !script.isEmpty { try connection.execute(script) }
            connection.deadline = nil
            return .success(connection)
        } catch {
            return .failure(error)
        }
    }

    /// Returns libpq's description of a failed connection: hosts, ports, roles, never a password.
    private static func reason(_ pointer: OpaquePointer) -> String {
        guard let text = PQerrorMessage(pointer) else { return "no reason given" }
        // The first line says what failed; the second, after a tab, asks whether the server runs.
        let lines = String(cString: text).split(whereSeparator: \.isNewline)
        return lines.map { $0.drop { $0.isWhitespace } }.joined(separator: "; ")
    }

    /// Gives up ownership of the libpq connection.
    func release() -> OpaquePointer {
        guard let pointer else { preconditionFailure("a connection can be released only once") }
        self.pointer = nil
        return pointer
    }

    /// Runs a script of any number of statements.
    ///
    /// - Throws: ``PostgresError`` of the first statement that fails.
    package func execute(_ script: String) throws(PostgresError) {
        _ = try self.query(script)
    }

    /// Runs a script and returns the first column of its last statement's rows as text.
    package func query(_ script: String) throws(PostgresError) -> [String] {
        guard let pointer else { throw PostgresError(.closed) }
        let answer: OpaquePointer? =
            if let deadline { try Self.run(script, on: pointer, by: deadline) } else { PQexec(pointer, script) }
        defer { PQclear(answer) }
        switch PQresultStatus(answer) {
        case PGRES_COMMAND_OK, PGRES_EMPTY_QUERY: return []
        case PGRES_TUPLES_OK:
            return (0..<PQntuples(answer)).compactMap { row in
                PQgetvalue(answer, row, 0).map { String(cString: $0) }
            }
        default:
            // `PQexec` reports a lost connection as a result too.
            guard let answer, PQstatus(pointer) == CONNECTION_OK else {
                throw PostgresError(.connectionLost, Self.reason(pointer))
            }
            throw PostgresError(result: answer)
        }
    }

    /// Runs a script as `PQexec` does, with a time limit.
    ///
    /// - Returns: the last result, which the caller frees; nil if the connection was lost.
    private static func run(
        _ script: String,
        on pointer: OpaquePointer,
        by deadline: ContinuousClock.Instant
    ) throws(PostgresError) -> OpaquePointer? {
        guard PQsendQuery(pointer, script) == 1 else { return nil }
        var last: OpaquePointer?
        while true {
            while PQisBusy(pointer) == 1 {
                let left = deadline - ContinuousClock.now
                guard left > .zero else {
                    PQclear(last)
                    throw PostgresError(.unavailable, "no answer in time after the login")
                }
                var wanted = pollfd(fd: PQsocket(pointer), events: Int16(POLLIN), revents: 0)
                // Rounded up, so that the last millisecond does not spin.
                poll(&wanted, 1, CInt(clamping: left.inMilliseconds + 1))
                guard ConnectionInput.read(pointer) else {
                    PQclear(last)
                    return nil
                }
            }
            guard let next = PQgetResult(pointer) else { return last }
            PQclear(last)
            last = next
        }
    }
}
