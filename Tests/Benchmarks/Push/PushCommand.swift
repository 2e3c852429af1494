// Carillon · PushCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

/// Jobs a second from XADD to FCM, for users who are offline.
struct PushCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "push",
        abstract: "Jobs a second to FCM for offline users."
    )

    @OptionGroup var load: PushLoad

    func run() async throws {
        let tag = PushLoad.tag()
        let devices = self.load.users(tag).map { OfflineUsers.Device(user: $0, token: "token-\($0)") }
        try await self.load.measure(devices, platform: "android", provider: "fcm").print("job_to_fcm_rate", self.load)
    }
}
