// Carillon · TransferCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

/// The transfer client beside `Yardsticks/transfer.c`, both against nghttpd.
struct TransferCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "transfer",
        abstract: "HTTP/2 requests a second beside a plain libcurl program."
    )

    @Option(help: "The program made of Yardsticks/transfer.c.")
    var yardstick: String

    @Option var requests = 100_000
    @Option(help: "How often each is measured; the median counts.")
    var rounds = 3

    func run() async throws {
        let yardstick = try await LibcurlYardstick(program: self.yardstick)
        for streams in [100, 250, 500] {
            let benchmark = TransferBenchmark(
                url: yardstick.url, caFile: yardstick.certificate, requests: self.requests, streams: streams)
            var yardsticks: [Double] = []
            var ours: [Double] = []
            for _ in 0..<self.rounds {
                yardsticks.append(try yardstick.rate(requests: self.requests, streams: streams))
                ours.append(try await benchmark.run())
            }
            var report = Report("transfer")
            report.add("streams", streams)
            report.add("requests", self.requests)
            report.add("yardstick_libcurl_per_second", median(yardsticks))
            report.add("per_second", median(ours))
            report.add("ratio", median(ours) / median(yardsticks))
            try report.print()
        }
        try await yardstick.end()
    }
}
