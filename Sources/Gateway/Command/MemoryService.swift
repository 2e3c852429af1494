// Carillon · MemoryService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import ServiceLifecycle
import Sockets

/// Returns freed memory to the system after a flood of requests.
///
/// The C library keeps what was freed between blocks that are in use, and would keep it for good.
struct MemoryService: Service {
    private static let interval: Duration = .seconds(5)

    /// Counts the bytes of requests that are not answered.
    let bodies: Tally

    func run() async throws {
        await cancelWhenGracefulShutdown {
            // Connections free their buffers shortly after the count falls, so poll it.
            while (try? await Task.sleep(for: Self.interval)) != nil {
                if self.bodies.hasEbbed() { Heap.trim() }
            }
        }
    }
}
