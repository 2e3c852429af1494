// Carillon · DeliverySpan.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Operations
import Providers
import Tracing

/// The span of a provider call, for notifications that are in a trace.
enum DeliverySpan {
    /// Sends a message; the call carries the span on.
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
            if let fault = Self.fault(reply) { span.setStatus(SpanStatus(code: .error, message: fault)) }
            return reply
        }
    }

    /// Why the provider did not take it; nil if it did.
    private static func fault(_ reply: ProviderReply) -> String? {
        switch reply.result {
        case .answered(let answer): answer.reason
        case .unanswered(let reason, _): reason
        case .noCredential: "no_credential"
        case .unsendable(let reason): reason
        case .noTurn: "no_turn"
        }
    }
}
