// Carillon · ConcurrentServices.swift
// SPDX-License-Identifier: Apache-2.0

import ServiceLifecycle

/// Runs services that also shut down at the same time.
///
/// A service group ends its services one after the other, so each may take the whole time limit of
/// the shutdown from those after it.
package struct ConcurrentServices: Service {
    private let services: [any Service]

    package init(_ services: [any Service]) {
        self.services = services
    }

    package func run() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for service in self.services { group.addTask { try await service.run() } }
            // `waitForAll` would wait for the others after a failure. An end without a shutdown is
            // one, as in a service group.
            for try await _ in group where !Task.isShuttingDownGracefully { group.cancelAll() }
        }
    }
}
