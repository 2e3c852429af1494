// Carillon · RefreshService.swift
// SPDX-License-Identifier: Apache-2.0

import ServiceLifecycle
import UnixSignals

/// Rereads files at an interval and on SIGHUP.
///
/// A mounted secret or a package update changes files without a signal, so it polls. SIGHUP is for
/// operators who do not want to wait.
package struct RefreshService: Service {
    private let interval: Duration
    private let refresh: @Sendable () async -> Void

    /// - Parameter refresh: rereads the files; never runs twice at a time.
    package init(every interval: Duration, _ refresh: @escaping @Sendable () async -> Void) {
        self.interval = interval
        self.refresh = refresh
    }

    package func run() async throws {
        // One refresh answers all earlier requests.
        let (requests, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        await cancelWhenGracefulShutdown {
            await withTaskGroup { group in
                group.addTask {
                    while (try? await Task.sleep(for: self.interval)) != nil { continuation.yield() }
                }
                group.addTask {
                    for await _ in await UnixSignalsSequence(trapping: .sighup) { continuation.yield() }
                }
                for await _ in requests { await self.refresh() }
            }
        }
    }
}
