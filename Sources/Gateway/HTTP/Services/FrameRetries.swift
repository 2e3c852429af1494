// Carillon · FrameRetries.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Logging
import Metrics
import ServiceLifecycle
import Storage

/// Retries inbox changes that could not be published.
///
/// Sockets recognise a repeated change by its version and drop it.
package final class FrameRetries: Service {
    /// The most changes that wait, each of up to some tens of kilobytes; a retry publishes all at
    /// once.
    private static let capacity = 1_024
    /// How long a change is retried.
    private static let patience: Duration = .seconds(30)
    private static let backoff = Backoff(base: .milliseconds(50), limit: .seconds(2))

    private let frames = BatchQueue<NodeFrame>(capacity: FrameRetries.capacity)
    private let publisher: FramePublisher
    private let lost: Counter
    private let now: @Sendable () -> ContinuousClock.Instant
    private let logger: Logger

    init(
        _ base: GatewayBase,
        metrics: any MetricsFactory = MetricsSystem.factory,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.publisher = base.publisher
        self.lost = Counter(label: "carillon.frames.lost", factory: metrics)
        self.now = now
        self.logger = base.logger
    }

    /// Adds a change; counts it as lost if too many wait.
    func add(_ frame: NodeFrame) {
        if !self.frames.offer(frame) { self.lost.increment() }
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            await withTaskCancellationHandler {
                while let batch = await self.frames.next(limit: Self.capacity) { await self.publish(batch) }
            } onCancel: {
                self.frames.finish()
            }
        }
    }

    private func publish(_ frames: [NodeFrame]) async {
        var rest = frames
        let end = self.now() + Self.patience
        var attempt = 0
        repeat {
            // Redis does not signal its return, so retry with backoff.
            try? await Task.sleep(for: Self.backoff.delay(attempt: attempt))
            attempt += 1
            // A separate task is not cancelled at shutdown, so each change gets at least one
            // attempt.
            let refused = rest
            rest = await Task { await self.refused(refused) }.value
        } while !rest.isEmpty && !Task.isCancelled && self.now() < end
        guard !rest.isEmpty else { return }
        self.lost.increment(by: rest.count)
        self.logger.warning(
            "lost inbox changes; sockets resync at the next frame", metadata: ["count": "\(rest.count)"])
    }

    /// Publishes each frame separately, because only some users' servers may be unreachable.
    ///
    /// - Returns: the frames that failed.
    private func refused(_ frames: [NodeFrame]) async -> [NodeFrame] {
        let publisher = self.publisher
        return await withTaskGroup(of: NodeFrame?.self) { group in
            for frame in frames {
                group.addTask { (try? await publisher.publish(frame)) == nil ? frame : nil }
            }
            var refused: [NodeFrame] = []
            for await frame in group {
                if let frame { refused.append(frame) }
            }
            return refused
        }
    }
}
