// Carillon · TransferCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import Transfer

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
        let folder = try TemporaryFolder()
        let key = "\(folder.path)/key.pem"
        let certificate = "\(folder.path)/certificate.pem"
        _ = try Tool.run(
            "openssl",
            [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out",
                certificate,
            ],
            isQuiet: true
        )
        try Data(#"{"name":"projects/p/messages/1"}"#.utf8).write(to: URL(fileURLWithPath: "\(folder.path)/ok.json"))
        let port = Int.random(in: 20_000...32_000)
        let server = try await ChildProgram(
            "/usr/sbin/nghttpd",
            ["-a", "127.0.0.1", "-d", folder.path, "-m", "1000", String(port), key, certificate],
            logFile: "\(folder.path)/nghttpd.log"
        )
        let url = "https://localhost:\(port)/ok.json"
        try await Self.waitFor(url, certificate: certificate, server: server)
        for streams in [100, 250, 500] {
            let benchmark = TransferBenchmark(url: url, caFile: certificate, requests: self.requests, streams: streams)
            var yardsticks: [Double] = []
            var ours: [Double] = []
            for _ in 0..<self.rounds {
                let output = try Tool.run(
                    self.yardstick,
                    ["-n", String(self.requests), "-c", String(streams), "-C", certificate, url]
                )
                yardsticks.append(try Tool.figure("requests_per_second", in: output))
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
        try await server.end(by: SIGTERM)
    }

    private static func waitFor(_ url: String, certificate: String, server: ChildProgram) async throws {
        var configuration = TransferConfiguration()
        configuration.caFile = certificate
        let client = try TransferClient(configuration: configuration, logger: Environment.logger)
        let deadline = ContinuousClock.now + .seconds(10)
        while true {
            let outcome = await client.perform(TransferRequest(.get, url: url))
            if case .answered(let response) = outcome, response.status == 200 { break }
            guard server.exit == nil, ContinuousClock.now < deadline else {
                throw ValidationError("nghttpd does not serve: \(server.log)")
            }
            // The server says nothing when it listens, so it is tried.
            try await Task.sleep(for: .milliseconds(20))
        }
        await client.shutdown()
    }
}
