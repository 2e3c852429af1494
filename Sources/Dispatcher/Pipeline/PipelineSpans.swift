// Carillon · PipelineSpans.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Operations
import Providers
import Storage
import Tracing

/// The spans of a batch's jobs, from their append to the storing of their notifications.
struct JobSpans {
    private struct Appended: TracerInstant {
        let nanosecondsSinceEpoch: UInt64

        static func < (left: Appended, right: Appended) -> Bool {
            left.nanosecondsSinceEpoch < right.nanosecondsSinceEpoch
        }
    }

    private var spans: [any Span] = []

    /// Begins a job's span and makes it the parent of what follows; does nothing for a job without
    /// a trace.
    mutating func begin(_ content: inout JobContent, origin: JobOrigin, lane: Lane, now: Timestamp) {
        guard let traceParent = content.extras.traceParent else { return }
        let milliseconds = max(0, min(origin.milliseconds ?? now.milliseconds, now.milliseconds))
        let span = startSpan(
            "job",
            context: ServiceContext(traceParent: traceParent),
            ofKind: .consumer,
            at: Appended(nanosecondsSinceEpoch: UInt64(milliseconds) * 1_000_000)
        )
        span.attributes["messaging.destination.name"] = origin.latestStream
        span.attributes["messaging.message.id"] = origin.latestEntry
        span.attributes["notification.type"] = content.type
        span.attributes["job.lane"] = lane.rawValue
        content.extras.traceParent = span.context.trace?.traceParent
        self.spans.append(span)
    }

    func end() {
        for span in self.spans { span.end() }
    }
}

/// The span of a provider call, for notifications with a trace.
enum DeliverySpan {
    /// Sends a message inside a span that the request propagates.
    static func send(
        _ message: PushMessage,
        to device: Device,
        by channel: any ProviderChannel,
        attempt: Int
    ) async -> ProviderReply {
        guard let traceParent = message.notification.extras.traceParent else {
            return await channel.send(message, to: device)
        }
        let context = ServiceContext(traceParent: traceParent)
        return await withSpan("delivery", context: context, ofKind: .client) { span in
            var message = message
            message.notification.extras.traceParent = span.context.trace?.traceParent
            let reply = await channel.send(message, to: device)
            guard span.isRecording else { return reply }
            span.attributes["push.provider"] = channel.provider.rawValue
            span.attributes["push.app"] = channel.app
            span.attributes["notification.id"] = message.notification.id.description
            span.attributes["push.attempt"] = attempt + 1
            if case .answered(.accepted) = reply.result { return reply }
            span.setStatus(SpanStatus(code: .error, message: reply.summary))
            return reply
        }
    }
}
