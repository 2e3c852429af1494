// Carillon · LibcurlYardstick.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation

/// Debian's nghttpd, and `Yardsticks/transfer.c` that asks it as fast as a plain C program on libcurl can.
final class LibcurlYardstick {
    let url: String
    let certificate: String
    private let program: String
    private let folder: TemporaryFolder
    private let server: ChildProgram

    /// Starts the server.
    ///
    /// - Parameter program: the one made of `Yardsticks/transfer.c`.
    init(program: String) async throws {
        let folder = try TemporaryFolder()
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
        self.server = try await ChildProgram(
            "/usr/sbin/nghttpd",
            ["-a", "127.0.0.1", "-d", folder.path, "-m", "1000", String(port), key, self.certificate],
            logFile: "\(folder.path)/nghttpd.log"
        )
        self.url = "https://localhost:\(port)/ok.json"
        self.program = program
        self.folder = folder
        try await self.waitForServer()
    }

    /// Starts the server, measures once and ends it: requests a second on 500 streams.
    static func rate(program: String) async throws -> Double {
        let yardstick = try await LibcurlYardstick(program: program)
        let rate = try yardstick.rate(requests: 100_000, streams: 500)
        try await yardstick.end()
        return rate
    }

    /// Requests a second.
    func rate(requests: Int, streams: Int) throws -> Double {
        let output = try Tool.run(
            self.program, ["-n", String(requests), "-c", String(streams), "-C", self.certificate, self.url])
        return try Tool.figure("requests_per_second", in: output)
    }

    func end() async throws {
        try await self.server.end(by: SIGTERM)
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
                throw ValidationError("nghttpd does not serve: \(self.server.log)")
            }
            // The server says nothing when it listens, so it is tried.
            try await Task.sleep(for: .milliseconds(20))
        }
        await client.shutdown()
    }
}
