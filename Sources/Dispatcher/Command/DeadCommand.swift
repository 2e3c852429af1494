// Carillon · DeadCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Operations
import Storage

/// `dispatcher dead`.
struct DeadCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "dead",
        abstract: "Lists, shows, replays and discards dead letters.",
        discussion: """
            Needs DATABASE_URL. Running dispatchers replay letters.

            Examples:
              dispatcher dead list --reason "type:" --since 2026-11-20T00:00:00Z
              dispatcher dead show 17
              dispatcher dead replay --type payment_received --rate 50
              dispatcher dead discard 17
            """,
        subcommands: [List.self, Show.self, Replay.self, Discard.self]
    )

    /// The letters to list.
    struct Filter: ParsableArguments {
        @Option(help: "Prefix of the reason.")
        var reason: String?

        @Option(help: "The stream that the letter came from.", completion: .list(DeadCommand.streams))
        var stream: String?

        @Option(help: "The job's type.", completion: .catalogTypes)
        var type: String?

        @Option(help: "Only letters that became dead at or after this RFC 3339 time.")
        var since: String?

        @Option(help: "Only letters that became dead before this RFC 3339 time.")
        var until: String?

        func filter(id: Int64? = nil) throws -> DeadLetterStore.Filter {
            let texts = [("reason", self.reason), ("stream", self.stream), ("type", self.type)]
            // Every reason begins with "", so a script's unset variable would select all letters.
            for (name, text) in texts where text == "" {
                throw ValidationError("--\(name) must not be empty")
            }
            var filter = DeadLetterStore.Filter(id: id)
            filter.reason = self.reason
            filter.stream = self.stream
            filter.type = self.type
            filter.since = try self.moment("since", self.since)
            filter.until = try self.moment("until", self.until)
            return filter
        }

        private func moment(_ name: String, _ text: String?) throws -> Timestamp? {
            guard let text else { return nil }
            guard let moment = Timestamp(rfc3339: text) else {
                throw ValidationError("--\(name) must be an RFC 3339 time such as 2026-11-20T10:00:00Z")
            }
            return moment
        }
    }

    /// The letters to replay or discard: a number, a filter, or all.
    struct Choice: ParsableArguments {
        @Argument(help: "The letter's number.")
        var id: Int64?

        @OptionGroup var filter: Filter

        @Flag(help: "All letters.")
        var all = false

        func chosen() throws -> DeadLetterStore.Filter {
            let filter = try self.filter.filter(id: self.id)
            guard self.all || !filter.isEmpty else {
                throw ValidationError("give a number, a filter such as --reason, or --all")
            }
            return filter
        }
    }

    /// The streams that letters come from, for shell completion.
    private static var streams: [String] {
        let keys = Keyspace()
        let deliveries = Provider.all.flatMap { provider in
            Lane.allCases.map { keys.deliveries(provider, $0) }
        }
        return Lane.allCases.map { keys.jobs($0) } + [Keyspace.schedules] + deliveries
    }

    private static func with(_ options: CommonOptions, _ work: (DeadLetterStore) async throws -> Void) async throws {
        try await DispatcherCommand.run {
            try await CommandClients.withDatabase(options, name: "dead") { pool in
                try await work(Database(pool).deadLetters)
            }
        }
    }

    /// Throws if a filter names a letter by a number that does not exist.
    ///
    /// A letter that exists, but does not match the rest of the filter, is no error.
    private static func checkNumber(_ filter: DeadLetterStore.Filter, _ store: DeadLetterStore) async throws {
        guard let id = filter.id, try await store.find(id) == nil else { return }
        throw Self.missing(id)
    }

    private static func missing(_ id: Int64) -> CommandFailure {
        CommandFailure(ExitStatus.no, "there is no dead letter \(id)")
    }

    /// `dispatcher dead list`.
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Lists letters, newest first.",
            discussion: """
                With --json, prints one object per line, as in GET /v1/admin/dead-letters.
                --before continues a list.

                Examples:
                  dispatcher dead list
                  dispatcher dead list --reason "type:" --since 2026-11-20T00:00:00Z --json
                """
        )

        @OptionGroup var options: CommonOptions
        @OptionGroup var output: OutputOptions
        @OptionGroup var filter: Filter

        @Option(help: "How many, 1 to 100000.")
        var limit = 50

        @Option(help: "Only letters with smaller numbers, for the next page.")
        var before: Int64?

        func run() async throws {
            guard (1...100_000).contains(self.limit) else { throw ValidationError("--limit must be 1 to 100000") }
            let filter = try self.filter.filter()
            try await DeadCommand.with(self.options) { store in
                var table = Table([
                    .number("NUMBER"), .text("AT"), .wrapped("STREAM"), .wrapped("REASON"), .text("REPLAY"),
                ])
                var last = self.before
                var rest = self.limit
                while rest > 0 {
                    let page = try await store.list(filter, before: last, limit: min(rest, 100))
                    for letter in page {
                        if self.output.json {
                            Terminal.value(letter, as: DeadLetterStore.Letter.shape)
                        } else {
                            table.add([
                                "\(letter.id)", letter.at.rfc3339, letter.stream, letter.reason,
                                letter.replayAt?.rfc3339,
                            ])
                        }
                    }
                    rest -= page.count
                    last = page.last?.id
                    if page.isEmpty { break }
                }
                if !self.output.json { table.show(none: "no dead letters") }
            }
        }
    }

    /// `dispatcher dead show`.
    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Shows a letter with all its fields.",
            discussion: """
                Exits with 1 if there is no such letter.

                Examples:
                  dispatcher dead show 17
                  dispatcher dead show 17 --json
                """
        )

        @OptionGroup var options: CommonOptions
        @OptionGroup var output: OutputOptions

        @Argument(help: "The letter's number.")
        var id: Int64

        func run() async throws {
            try await DeadCommand.with(self.options) { store in
                guard let letter = try await store.find(self.id) else { throw DeadCommand.missing(self.id) }
                guard !self.output.json else { return Terminal.value(letter, as: DeadLetterStore.Letter.shape) }
                var card = Card()
                card.add("number", "\(letter.id)")
                card.add("at", letter.at.rfc3339)
                card.add("origin", "\(letter.stream) \(letter.entry)")
                card.add("reason", letter.reason)
                card.add("replay", letter.replayAt?.rfc3339)
                card.show()
                for field in letter.fields {
                    let value = String(decoding: field.value, as: UTF8.self)
                    Terminal.line("  \(DisplayText.line(field.name)): \(DisplayText.line(value))")
                }
            }
        }
    }

    /// `dispatcher dead replay`.
    struct Replay: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Replays letters to their streams.",
            discussion: """
                Give a number, a filter, or --all. Running dispatchers replay them. A letter
                that is replayed twice notifies once. Exits with 1 if there is no letter with
                the number.

                Examples:
                  dispatcher dead replay 17
                  dispatcher dead replay --reason "type:" --rate 50
                """
        )

        @OptionGroup var options: CommonOptions
        @OptionGroup var output: OutputOptions
        @OptionGroup var choice: Choice

        @Option(help: "How many a second, 1 to 10000.")
        var rate = 100

        func run() async throws {
            guard (1...10_000).contains(self.rate) else { throw ValidationError("--rate must be 1 to 10000") }
            let filter = try self.choice.chosen()
            try await DeadCommand.with(self.options) { store in
                let (count, until) = try await store.replay(filter, to: Keyspace().takesBack, rate: self.rate)
                if count == 0 {
                    try await DeadCommand.checkNumber(filter, store)
                    try await Self.explain(filter, store)
                }
                if self.output.json {
                    Terminal.object { writer in
                        writer.member("count", count)
                        writer.member("until", until?.rfc3339)
                    }
                } else {
                    let last = until.map { ", the last at \($0.rfc3339); see `dispatcher dead list`" }
                    Terminal.line("\(count) will be replayed" + (last ?? ""))
                }
            }
        }

        /// Explains why a letter that the filter names by its number is not replayed.
        private static func explain(_ filter: DeadLetterStore.Filter, _ store: DeadLetterStore) async throws {
            guard filter.id != nil, let letter = try await store.list(filter, limit: 1).first else { return }
            if let at = letter.replayAt {
                Terminal.error("a replay of dead letter \(letter.id) is scheduled already, at \(at.rfc3339)")
            } else if !Keyspace().takesBack(letter.stream) {
                Terminal.error("the stream of dead letter \(letter.id) takes no replays: \(letter.stream)")
            }
        }
    }

    /// `dispatcher dead discard`.
    struct Discard: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Deletes letters.",
            discussion: """
                Give a number, a filter, or --all. Exits with 1 if there is no letter with the
                number.

                Examples:
                  dispatcher dead discard 17
                  dispatcher dead discard --type payment_received --until 2026-11-01T00:00:00Z
                """
        )

        @OptionGroup var options: CommonOptions
        @OptionGroup var output: OutputOptions
        @OptionGroup var choice: Choice

        func run() async throws {
            let filter = try self.choice.chosen()
            try await DeadCommand.with(self.options) { store in
                let count = try await store.discard(filter)
                if count == 0 { try await DeadCommand.checkNumber(filter, store) }
                guard !self.output.json else { return Terminal.object { $0.member("count", count) } }
                Terminal.line("\(count) discarded")
            }
        }
    }
}
