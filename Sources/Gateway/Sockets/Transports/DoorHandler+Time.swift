// Carillon · DoorHandler+Time.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import NIOCore
import NIOHTTP1

/// What clients may take their time for.
extension DoorHandler {
    /// A body that does not come to its end is the end of its connection.
    func limitBody() {
        self.timeout?.cancel()
        guard let context else { return }
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        self.timeout = context.eventLoop.scheduleTask(in: TimeAmount(self.timeouts.body)) {
            let (handler, context) = bound.value
            DoorMetrics.refusedSlow.increment()
            guard case .collecting(_, _, let endpoint) = handler.phase else { return context.close(promise: nil) }
            handler.answer(nil, endpoint.refusal(.requestTimeout, reason: "the body did not come in time"))
        }
    }

    /// Closes on a client that reads nothing at all of what waits for it.
    func watchReader(_ context: ChannelHandlerContext, waiting: Int) {
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        self.stall = context.eventLoop.scheduleTask(in: TimeAmount(self.timeouts.stall)) {
            let (handler, context) = bound.value
            let rest = handler.backlog
            guard rest >= waiting else { return handler.watchReader(context, waiting: rest) }
            DoorMetrics.refusedSlow.increment()
            context.close(mode: .all, promise: nil)
        }
    }
}
