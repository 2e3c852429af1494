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
        abstract: "Tells how much waits in the streams, and for how long.",
        discussion: """
            For each lane and provider: entries in the stream, those that nobody has taken
            (lag), those that are being worked on (pending), the age of the oldest of all
            and of those, who has taken any, the retries with how long the first is
            overdue, and how long the oldest work has waited in all, due or not. Needs
            REDIS_URL. With --max, exits with 1 if anything that could have been done has
            waited for longer, for scripts and autoscalers.

            Examples:
              dispatcher lag
              dispatcher lag --watch
              dispatcher lag --max 60 || systemctl start carillon-dispatcher@2
              dispatcher lag --json | jq .worst_seconds
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Goes on looking until it is interrupted.")
    var watch = false

    @Option(help: ArgumentHelp("Between two looks of --watch, 1 to 3600.", valueName: "seconds"))
    var interval = 2

    @Option(help: ArgumentHelp("Exit with 1 if anything has waited for longer, 0 or more.", valueName: "seconds"))
    var max: Int?

    @Flag(help: "Lists streams that are empty, too.")
    var all = false

    func validate() throws {
        guard (1...3_600).contains(self.interval) else { throw ValidationError("--interval must be 1 to 3600") }
        if let max, max < 0 { throw ValidationError("--max must be 0 or more") }
        if self.watch, self.max != nil { throw ValidationError("--max is for one look; leave --watch out") }
    }

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try await self.options.reader()
            let address = await CommandClients.redis(reader, name: "lag")
            try reader.finish()
            guard let address else { return }
            try await CommandClients.withRedis(address) { connection in
                let survey = Live(connection).survey
                var report = try await self.look(survey)
                while self.watch {
                    // Redis does not signal how long a stream is, so poll at the interval that was asked for.
                    try await Task.sleep(for: .seconds(self.interval))
                    report = try await self.look(survey)
                }
                guard let max, report.worst > .seconds(max) else { return }
                let worst = DisplayText.duration(report.worst)
                throw CommandFailure(ExitStatus.no, "something has waited for \(worst), which is more than \(max) s")
            }
        }
    }

    private func look(_ survey: StreamSurvey) async throws -> LagReport {
        let streams = try await survey.streams()
        let report = LagReport(streams: streams, aside: try await survey.aside(), now: try await survey.time())
        if self.output.json {
            Terminal.object { report.write(to: &$0) }
            return report
        }
        let (table, empty) = report.table(showsAll: self.all)
        if self.watch, Terminal.width != nil { Terminal.clear() }
        table.show()
        if empty > 0 { Terminal.line("and \(empty) empty streams of deliveries") }
        Terminal.line(
            "dead letters \(report.aside.dead), waiting for proof \(report.aside.unconfirmed), "
                + "in overflow \(report.aside.overflow)")
        if self.watch { Terminal.line("at \(report.now.rfc3339)") }
        return report
    }
}
