// Carillon · WebPushCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Crypto
import Foundation

/// Messages encrypted a second, and jobs a second from XADD to browsers' push service, for users who are offline.
struct WebPushCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "webpush",
        abstract: "Messages encrypted a second on one core, beside OpenSSL's bare ECDH; jobs a second to Web Push."
    )

    @OptionGroup var load: PushLoad
    @Option(help: "Messages to encrypt in each round.")
    var messages = 20_000
    @Option(help: "How often each is measured; the median counts.")
    var rounds = 3

    func run() async throws {
        try self.measureEncryption()
        let tag = PushLoad.tag()
        let key = try VAPIDKey(file: Array(try Data(contentsOf: URL(filePath: Environment.require("VAPID_KEY")))))
        let sandbox = try SandboxControl()
        var devices: [OfflineUsers.Device] = []
        for user in self.load.users(tag) {
            devices.append(.init(user: user, token: try await sandbox.subscription(user, key: key.publicKey)))
        }
        try await self.load.measure(devices, platform: "web", provider: "webpush")
            .print("job_to_webpush_rate", self.load)
    }

    private func measureEncryption() throws {
        let encryption = try WebPushEncryption()
        let message = Array(String(repeating: "m", count: 400).utf8)
        let browsers = (0..<100).map { _ in Array(P256.KeyAgreement.PrivateKey().publicKey.x963Representation) }
        let secret = [UInt8](repeating: 7, count: 16)
        var yardsticks: [Double] = []
        var ours: [Double] = []
        for _ in 0..<self.rounds {
            yardsticks.append(try Self.yardstick())
            let start = ContinuousClock.now
            for number in 0..<self.messages {
                _ = try encryption.encrypt(message, publicKey: browsers[number % browsers.count], secret: secret)
            }
            ours.append(Double(self.messages) / (ContinuousClock.now - start).inSeconds)
        }
        var report = Report("webpush_encryption")
        report.add("messages", self.messages)
        report.add("per_second", median(ours))
        report.add("yardstick_openssl_ecdhp256_per_second", median(yardsticks))
        report.add("ratio", median(ours) / median(yardsticks))
        try report.print()
    }

    /// Multiplications of a point that is not the generator, which a message needs one of; and one of the generator.
    private static func yardstick() throws -> Double {
        // It ends by SIGALRM, which Swift's threads block, and their children with them.
        let output = try Tool.run(
            "env", ["--default-signal=ALRM", "openssl", "speed", "-seconds", "1", "ecdhp256"], isQuiet: true)
        let line = output.split(separator: "\n").last { $0.contains("nistp256") }
        guard let figure = line?.split(separator: " ").last.flatMap({ Double($0) }) else {
            throw ValidationError("openssl speed told no figure")
        }
        return figure
    }
}
