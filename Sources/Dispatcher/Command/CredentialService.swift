// Carillon · CredentialService.swift
// SPDX-License-Identifier: Apache-2.0

import Pipeline
import Providers
import ServiceLifecycle

/// Looks after the files of credentials and puts new ones into use.
struct CredentialService: Service {
    private static let interval: Duration = .seconds(10)

    let channels: AppChannels
    let directory: ChannelDirectory

    func run() async throws {
        await cancelWhenGracefulShutdown {
            // Whoever changes a file tells nobody, and a mounted secret is changed by a link.
            while (try? await Task.sleep(for: Self.interval)) != nil {
                await self.channels.renew(self.directory)
            }
        }
    }
}
