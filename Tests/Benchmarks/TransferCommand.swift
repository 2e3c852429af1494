// Carillon · TransferCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Logging
import Support

/// Measures the transfer client; the yardstick is `Yardsticks/transfer.c`, both against nghttpd.
struct TransferCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "transfer",
        abstract: "Measures HTTP/2 requests a second; yardstick: plain C on libcurl."
    )

    @Option(help: "Path of the compiled Yardsticks/transfer.c.")
    var yardstick: String

    @Option var requests = 100_000
    @Option(help: "Rounds; the median counts.")
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

/// Measures the transfer client with the load of `Yardsticks/transfer.c`.
///
/// A closed loop of 400-byte POSTs over one HTTP/2 connection, with one caller per stream.
struct TransferBenchmark {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    let url: String
    let caFile: String
    let requests: Int
    let streams: Int

    /// Returns requests a second.
    ///
    /// - Throws: ``Failure`` if any request failed, because the figure would be meaningless.
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
        guard failed == 0 else { throw Failure(description: "\(failed) requests had no answer") }
        return Double(self.requests) / seconds
    }
}

/// Debian's nghttpd as the server, and `Yardsticks/transfer.c`, a plain C program on libcurl, as
/// the client.
final class LibcurlYardstick {
    let url: String
    let certificate: String
    private let program: String
    private let folder: TemporaryDirectory
    private let server: ChildProcess

    /// Starts the server.
    ///
    /// - Parameter program: the compiled `Yardsticks/transfer.c`.
    init(program: String) async throws {
        let folder = try TemporaryDirectory("bench")
        let key = "\(folder.path)/key.pem"
        self.certificate = "\(folder.path)/certificate.pem"
        _ = try Tool.run(
            "openssl",
            [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out",
                self.certificate,
            ],
            isQuiet: true
        )
        try Data(#"{"name":"projects/p/messages/1"}"#.utf8).write(to: URL(fileURLWithPath: "\(folder.path)/ok.json"))
        let port = Int.random(in: 20_000...32_000)
        self.server = try await ChildProcess.spawn(
            "/usr/sbin/nghttpd",
            ["-a", "127.0.0.1", "-d", folder.path, "-m", "1000", String(port), key, self.certificate],
            directory: folder.path)
        self.url = "https://localhost:\(port)/ok.json"
        self.program = program
        self.folder = folder
        try await self.waitForServer()
    }

    /// Starts the server, measures once with 500 streams, and stops the server; returns requests a
    /// second.
    static func rate(program: String) async throws -> Double {
        let yardstick = try await LibcurlYardstick(program: program)
        let rate = try yardstick.rate(requests: 100_000, streams: 500)
        try await yardstick.end()
        return rate
    }

    /// Returns requests a second.
    func rate(requests: Int, streams: Int) throws -> Double {
        let output = try Tool.run(
            self.program, ["-n", String(requests), "-c", String(streams), "-C", self.certificate, self.url])
        return try Tool.figure("requests_per_second", in: output)
    }

    func end() async throws {
        try await self.server.stop()
    }

    private func waitForServer() async throws {
        var configuration = TransferConfiguration()
        configuration.caFile = self.certificate
        let client = try TransferClient(configuration: configuration, logger: Environment.logger)
        let deadline = ContinuousClock.now + .seconds(10)
        while true {
            let outcome = await client.perform(TransferRequest(.get, url: self.url))
            if case .answered(let response) = outcome, response.status == 200 { break }
            guard self.server.exit == nil, ContinuousClock.now < deadline else {
                throw ValidationError("nghttpd does not respond: \(self.server.tail())")
            }
            // Poll, because nghttpd does not signal that it listens.
            try await Task.sleep(for: .milliseconds(20))
        }
        await client.shutdown()
    }
}
