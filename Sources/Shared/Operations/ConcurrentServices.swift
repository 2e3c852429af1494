// Carillon · ConcurrentServices.swift
// SPDX-License-Identifier: Apache-2.0

import ServiceLifecycle

/// Runs services that shut down concurrently.
///
/// A service group shuts its services down one after another, so a slow one can use up the time
/// limit of those after it.
package struct ConcurrentServices: Service {
    private let services: [any Service]

    package init(_ services: [any Service]) {
        self.services = services
    }

    package func run() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for service in self.services { group.addTask { try await service.run() } }
            // Not `waitForAll`, which would wait for the others after a failure. As in a service
            // group, a service that ends before the shutdown counts as failed.
            for try await _ in group where !Task.isShuttingDownGracefully { group.cancelAll() }
        }
    }
}
