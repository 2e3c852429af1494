// Carillon · ZoneRefreshService.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging
import ServiceLifecycle

/// Looks whether the machine's time-zone data has changed, so that what a gateway simulates goes by the law of now.
struct ZoneRefreshService: Service {
    private static let interval: Duration = .seconds(60)

    let zones: ZoneDatabase
    let logger: Logger

    func run() async throws {
        _ = self.zones.refresh()
        await cancelWhenGracefulShutdown {
            // A package update sends no signal, so poll the files, as dispatchers do.
            while (try? await Task.sleep(for: Self.interval)) != nil {
                guard self.zones.refresh() else { continue }
                self.logger.notice(
                    "time-zone data has changed", metadata: ["zones.version": "\(self.zones.version)"])
            }
        }
    }
}
