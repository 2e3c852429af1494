// Carillon · LagCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Operations
import Storage

/// `dispatcher lag`.
struct LagCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "lag",
        abstract: "Shows how much waits in each stream, and for how long.",
        discussion: """
            Columns: entries, entries that no dispatcher has taken (lag), entries in
            flight (pending), age of the oldest entry and of the oldest in flight,
            dispatchers that take from the stream (consumers), retries and held-back
            deliveries, how long the first of them is overdue, and how long the oldest
            work has waited in all, due or not. Needs REDIS_URL. With --max, exits with 1
            if an entry has waited or a retry has been overdue for longer, but not if open
            circuit breakers keep the retry back. Meant for scripts and autoscalers.

            Examples:
              dispatcher lag
              dispatcher lag --watch
              dispatcher lag --max 60 || systemctl start carillon-dispatcher@9092
              dispatcher lag --json | jq .worst_seconds
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Repeats until interrupted.")
    var watch = false

    @Option(help: ArgumentHelp("Seconds between two reads with --watch, 1 to 3600.", valueName: "seconds"))
    var interval = 2

    @Option(help: ArgumentHelp("Exits with 1 if anything has waited longer, 0 or more.", valueName: "seconds"))
    var max: Int?

    @Flag(help: "Lists empty streams, too.")
    var all = false

    func validate() throws {
        guard (1...3_600).contains(self.interval) else { throw ValidationError("--interval must be 1 to 3600") }
        if let max, max < 0 { throw ValidationError("--max must be 0 or more") }
        if self.watch, self.max != nil { throw ValidationError("--max is for one read; leave --watch out") }
    }

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try self.options.reader()
            let redis = CommandClients.redis(reader, name: "lag")
            try reader.finish()
            try await CommandClients.withRedis(redis) { connection in
                let live = try await Live.installed(on: connection)
                var report = try await self.poll(live.survey, live.providerBoard)
                while self.watch {
                    // Redis does not signal the length of a stream, so poll at the given interval.
                    try await Task.sleep(for: .seconds(self.interval))
                    report = try await self.poll(live.survey, live.providerBoard)
                }
                guard let max, report.worst > .seconds(max) else { return }
                let worst = DisplayText.duration(report.worst)
                throw CommandFailure(ExitStatus.no, "something has waited for \(worst), which is more than \(max) s")
            }
        }
    }

    private func poll(_ survey: StreamSurvey, _ board: ProviderBoard) async throws -> LagReport {
        let streams = try await survey.streams()
        let now = try await survey.time()
        let report = LagReport(
            streams: streams, awaitedProofs: try await survey.awaitedProofs(),
            providers: try await board.report(now: now, removesStale: false), now: now)
        if self.output.json {
            Terminal.object { report.write(to: &$0) }
            return report
        }
        let (table, empty) = report.table(showsAll: self.all)
        if self.watch, Terminal.width != nil { Terminal.clear() }
        table.show()
        if empty > 0 { Terminal.line("and \(empty) empty streams of deliveries") }
        Terminal.line("waiting for proof \(report.awaitedProofs), in overflow \(report.overflow)")
        if self.watch { Terminal.line("at \(report.now.rfc3339)") }
        return report
    }
}

/// The length and age of every queue.
struct LagReport {
    let streams: [StreamSurvey.Stream]
    /// Notifications that wait for a proof.
    let awaitedProofs: Int
    /// The circuit breakers.
    let providers: ProviderReport
    /// Redis's clock, which also dates the entries.
    let now: Timestamp

    /// Jobs in the overflows of all organisations.
    var overflow: Int { self.streams.filter(\.isOverflow).reduce(0) { $0 + $1.length } }

    /// The longest wait of work that more dispatchers could have done.
    ///
    /// Leaves out retries of an unavailable provider, and deliveries held back for an unavailable
    /// app, because they stay in their sets past their due time.
    var worst: Duration {
        var moments = self.streams.compactMap(\.oldest)
        for stream in self.streams {
            guard let provider = stream.provider else { continue }
            for (scope, due) in stream.firstDue where !self.providers.isUnavailable(provider, app: scope?.app) {
                // While a push service is unavailable, its deliveries wait until they are overdue.
                moments.append(scope?.service == nil ? due : due + RetrySet.overdue)
            }
        }
        return moments.min().map { max(.zero, self.now - $0) } ?? .zero
    }

    /// Returns a table for people; empty streams are only counted.
    ///
    /// - Parameter showsAll: whether empty streams are listed too.
    func table(showsAll: Bool) -> (table: Table, empty: Int) {
        var table = Table([
            .text("STREAM"), .number("LENGTH"), .number("LAG"), .number("PENDING"), .number("OLDEST"),
            .number("OLDEST PENDING"), .number("CONSUMERS"), .number("RETRIES"), .number("OVERDUE"),
            .number("WAITED"),
        ])
        var empty = 0
        for stream in self.streams {
            // The jobs' streams are always listed.
            guard showsAll || stream.provider == nil || stream.length > 0 || stream.retries > 0 else {
                empty += 1
                continue
            }
            let shape = StreamShape(stream, now: self.now)
            table.add([
                stream.name, "\(stream.length)", stream.lag.map { "\($0)" }, "\(stream.pending)",
                shape.age.map { DisplayText.duration($0) },
                shape.pendingAge.map { DisplayText.duration($0) },
                "\(stream.consumers)", stream.provider == nil ? nil : "\(stream.retries)",
                shape.overdue.map { DisplayText.duration($0) },
                shape.waited.map { DisplayText.duration($0) },
            ])
        }
        return (table, empty)
    }

    /// Writes the members of a JSON object.
    func write(to writer: inout JSONWriter) {
        writer.member("at", self.now.rfc3339)
        writer.member("worst_seconds", self.worst.components.seconds)
        writer.array("streams", self.streams) { StreamShape.shape.write(StreamShape($1, now: self.now), to: &$0) }
        writer.member("unconfirmed", self.awaitedProofs)
        writer.member("overflow", self.overflow)
    }
}
