// Carillon · CatalogReloadService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import NIOCore
import ServiceLifecycle
import Storage
import UnixSignals

/// Reloads the catalog on SIGHUP, and when a gateway announces a reload.
package struct CatalogReloadService: Service {
    private let register: CatalogRegister
    private let configuration: RedisConfiguration
    private let channel: String
    private let eventLoop: any EventLoop
    private let logger: Logger
    private let hangups: UnixSignalsSequence

    /// Traps SIGHUP, which no longer ends the process.
    package init(
        register: CatalogRegister,
        configuration: RedisConfiguration,
        keys: Keyspace,
        eventLoop: any EventLoop,
        logger: Logger
    ) async {
        self.register = register
        self.configuration = configuration
        self.channel = keys.catalogChannel
        self.eventLoop = eventLoop
        self.logger = logger
        self.hangups = await UnixSignalsSequence(trapping: .sighup)
    }

    package func run() async throws {
        // One reload answers all earlier requests.
        let (calls, continuation) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let subscription = try RedisSubscription(
            self.configuration,
            channels: [self.channel],
            on: self.eventLoop,
            logger: self.logger
        ) { event in
            switch event {
            // Announcements are lost while the subscription is down, so reload on every new one.
            case .subscribed, .message: continuation.yield()
            case .resumed, .lost: break
            }
        }
        await withTaskGroup(of: Void.self) { group in
            group.addTask {
                for await _ in self.hangups.cancelOnGracefulShutdown() { continuation.yield() }
                continuation.finish()
            }
            for await _ in calls { _ = try? self.register.reload(logger: self.logger) }
            group.cancelAll()
        }
        await subscription.close()
    }
}
