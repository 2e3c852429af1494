// Carillon · WebPushCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Crypto
import Foundation

/// Measures encrypted messages a second; the yardstick is OpenSSL's ECDH.
struct WebPushCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "webpush",
        abstract: "Measures messages encrypted for Web Push a second; yardstick: OpenSSL's ECDH."
    )

    @Option(help: "Messages to encrypt in each round.")
    var messages = 20_000
    @Option(help: "Rounds; the median counts.")
    var rounds = 3

    func run() async throws {
        let encryption = try WebPushEncryption()
        let message = Array(String(repeating: "m", count: 400).utf8)
        let browsers = (0..<100).map { _ in Array(P256.KeyAgreement.PrivateKey().publicKey.x963Representation) }
        let secret = [UInt8](repeating: 7, count: 16)
        var yardsticks: [Double] = []
        var ours: [Double] = []
        for _ in 0..<self.rounds {
            yardsticks.append(try Self.yardstick())
            let elapsed = try await seconds {
                for number in 0..<self.messages {
                    _ = try encryption.encrypt(message, publicKey: browsers[number % browsers.count], secret: secret)
                }
            }
            ours.append(Double(self.messages) / elapsed)
        }
        var report = Report("webpush_encryption")
        report.add("messages", self.messages)
        report.add("per_second", median(ours))
        report.add("yardstick_openssl_ecdhp256_per_second", median(yardsticks))
        report.add("ratio", median(ours) / median(yardsticks))
        try report.print()
    }

    /// Returns ECDH operations a second: each multiplies a point other than the generator, as each
    /// message does once, besides one multiplication of the generator.
    private static func yardstick() throws -> Double {
        // `openssl speed` ends with SIGALRM, which Swift's threads and their children block.
        let output = try Tool.run(
            "env", ["--default-signal=ALRM", "openssl", "speed", "-seconds", "1", "ecdhp256"], isQuiet: true)
        let line = output.split(separator: "\n").last { $0.contains("nistp256") }
        guard let figure = line?.split(separator: " ").last.flatMap({ Double($0) }) else {
            throw ValidationError("openssl speed printed no figure")
        }
        return figure
    }
}
