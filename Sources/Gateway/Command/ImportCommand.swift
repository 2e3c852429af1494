// Carillon · ImportCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Glibc
import HTTP
import Operations
import Storage

/// `gateway import`.
struct ImportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Imports users with their settings, preferences, devices and topics.",
        discussion: """
            Reads JSON lines, one user each: the body of PUT /v1/users/{id}, with user_id.
            It skips faulty lines, reports them on standard error by number, stores the
            others and exits with 65. You may import the same file again. Needs
            DATABASE_URL, CATALOG and a migrated database. Exits with 66 if the file
            cannot be read. WEBPUSH_ORIGINS and APPS apply as for a gateway.

            Example line:
              {"user_id":"u1","settings":{"zone":"Europe/Zurich"},"topics":["news"]}

            Examples:
              gateway import users.jsonl
              psql -XAtc 'SELECT row_to_json(u) FROM my_users u' | gateway import -
            """
    )

    /// Users between two lines of progress without a terminal; a multiple of the batch size, 200.
    private static let usersPerLine = 10_000

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Argument(
        help: ArgumentHelp("A file of JSON lines; - for standard input.", valueName: "file"),
        completion: .file(extensions: ["jsonl", "ndjson", "json"])
    )
    var file: String

    func run() async throws {
        try await GatewayCommand.run {
            let reader = try self.options.reader()
            let configuration = CommandClients.database(reader, name: "import")
            let catalog = await CommandClients.catalog(reader, isRequired: true)
            let devices = DeviceSettings(reader)
            let rules = await reader.load("APPS", isSet: true) { try devices.rules() }
            try reader.finish()
            guard let catalog, let rules else { return }
            try await CommandClients.withDatabase(configuration) { pool in
                try await self.take(catalog, rules, pool)
            }
        }
    }

    private func take(
        _ catalog: Catalog,
        _ rules: DeviceRules,
        _ pool: PostgresPool
    ) async throws {
        let now: @Sendable () -> Timestamp = Timestamp.now
        let fields = UserFields(
            catalogs: CatalogRegister(catalog, now: now), now: now, webPushOrigins: rules.origins,
            appOrigins: rules.appOrigins)
        let isTerminal = isatty(STDERR_FILENO) == 1
        var lines = try LineReader(path: self.file)
        defer { lines.close() }
        var users = UserImport(
            fields: fields,
            store: Database(pool).users(limits: rules.limits),
            report: { line, fault in
                if isTerminal { Terminal.progress("") }
                Terminal.error("line \(line): \(fault)")
            },
            progress: { tally in
                let text = "\(tally.users) users of \(tally.lines) lines"
                if isTerminal {
                    Terminal.progress(text)
                } else if tally.users.isMultiple(of: Self.usersPerLine) {
                    Terminal.error(text)
                }
            }
        )
        let tally: UserImport.Tally
        do {
            while let line = try lines.next() { try await users.add(line) }
            tally = try await users.finish()
        } catch {
            if isTerminal { Terminal.progress("") }
            if users.storedLines > 0 {
                Terminal.error("the valid lines up to line \(users.storedLines) are stored; import the file again")
            }
            throw error
        }
        if isTerminal { Terminal.progress("") }
        if self.output.json {
            Terminal.object { writer in
                writer.member("users", tally.users)
                writer.member("devices", tally.devices)
                writer.member("preferences", tally.preferences)
                writer.member("subscriptions", tally.subscriptions)
                writer.member("faulty", tally.faulty)
            }
        } else {
            Terminal.line(
                "imported \(Self.count(tally.users, "user")), \(Self.count(tally.devices, "device")), "
                    + "\(Self.count(tally.preferences, "preference")), "
                    + "\(Self.count(tally.subscriptions, "subscription")); \(Self.count(tally.faulty, "faulty line"))"
            )
        }
        if tally.faulty > 0 { throw ExitStatus.data }
    }

    private static func count(_ number: Int, _ noun: String) -> String { "\(number) \(noun)\(number == 1 ? "" : "s")" }
}

/// Reads a file line by line, in pieces of bounded size.
struct LineReader {
    /// Longer lines are skipped and reported.
    private static let longestLine = 1024 * 1024

    private let path: String
    private let descriptor: CInt
    private var buffer: [UInt8] = []
    private var start = 0
    private var isAtEnd = false

    /// - Parameter path: `-` for standard input.
    init(path: String) throws(CommandFailure) {
        self.path = path
        self.descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        if self.descriptor < 0 { throw self.failure }
    }

    /// The failure of the last call to the system.
    private var failure: CommandFailure {
        CommandFailure(ExitStatus.noInput, "\(self.path): \(String(cString: strerror(errno)))")
    }

    func close() {
        if self.descriptor != STDIN_FILENO { _ = Glibc.close(self.descriptor) }
    }

    /// Returns the next line without its end; nil after the last one.
    mutating func next() throws(CommandFailure) -> UserImport.Line? {
        var isTooLong = false
        var searched = self.start
        while true {
            if let end = self.buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                defer { self.start = end + 1 }
                return isTooLong || end - self.start > Self.longestLine
                    ? .tooLong : .text(Array(self.buffer[self.start..<end]))
            }
            if self.isAtEnd {
                guard isTooLong || self.start < self.buffer.count else { return nil }
                defer { self.start = self.buffer.count }
                return isTooLong ? .tooLong : .text(Array(self.buffer[self.start...]))
            }
            if self.buffer.count - self.start > Self.longestLine {
                isTooLong = true
                self.start = self.buffer.count
            }
            self.buffer.removeFirst(self.start)
            self.start = 0
            searched = self.buffer.count
            try self.fill()
        }
    }

    private mutating func fill() throws(CommandFailure) {
        var piece = [UInt8](repeating: 0, count: 64 * 1024)
        // `read` writes at most `count` bytes to the array's own memory, which lives until the
        // closure returns.
        let count = piece.withUnsafeMutableBytes { read(self.descriptor, $0.baseAddress, $0.count) }
        if count < 0 {
            if errno == EINTR { return }
            throw self.failure
        }
        if count == 0 { self.isAtEnd = true }
        self.buffer += piece.prefix(count)
    }
}
