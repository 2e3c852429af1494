// Carillon · TransferBenchmark.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging

/// How many requests a second the transfer client gets through: the load of `Yardsticks/transfer.c`.
///
/// A closed loop of 400-byte POSTs over one HTTP/2 connection, with as many callers as there are streams.
struct TransferBenchmark {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    let url: String
    let caFile: String
    let requests: Int
    let streams: Int

    /// - Returns: Requests a second.
    /// - Throws: ``Failure`` if a request has no answer, since the figure would mean nothing.
    func run() async throws -> Double {
        var configuration = TransferConfiguration()
        configuration.caFile = self.caFile
        configuration.connectionsPerHost = 1
        configuration.streamsPerConnection = self.streams
        configuration.maximumInFlight = self.streams
        let client = try TransferClient(configuration: configuration, logger: Logger(label: "benchmark"))
        let request = TransferRequest(
            .post,
            url: self.url,
            headers: [(name: "content-type", value: "application/json")],
            body: [UInt8](repeating: UInt8(ascii: "x"), count: 400)
        )

        let start = ContinuousClock.now
        let failed = await withTaskGroup { group in
            for stream in 0..<self.streams {
                let share = self.requests / self.streams + (stream < self.requests % self.streams ? 1 : 0)
                group.addTask {
                    var failed = 0
                    for _ in 0..<share {
                        if case .unanswered = await client.perform(request) { failed += 1 }
                    }
                    return failed
                }
            }
            return await group.reduce(0, +)
        }
        let seconds = start.duration(to: .now) / .seconds(1)
        await client.shutdown()
        guard failed == 0 else { throw Failure(description: "\(failed) requests without an answer") }
        return Double(self.requests) / seconds
    }
}
