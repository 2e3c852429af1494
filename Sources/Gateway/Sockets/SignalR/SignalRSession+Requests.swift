// Carillon · SignalRSession+Requests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// What comes as HTTP requests: polls, messages, the end.
extension SignalRSession {
    /// What a request needs to know about the connection.
    var standing: SignalRHubRequest.Standing {
        let isAttached = if case .none = self.link { false } else { true }
        return SignalRHubRequest.Standing(
            transport: self.transport,
            isAttached: isAttached,
            canReattach: self.connection.canReattach
        )
    }

    /// Serves a request for this connection.
    ///
    /// - Returns: The answer; nil if it comes later.
    func serve(
        _ request: SignalRHubRequest,
        _ body: [UInt8],
        number: UInt64,
        reply: SignalRReply
    ) -> SignalRResponse? {
        switch request.verdict(self.standing, transports: self.node.configuration.transports) {
        case .refuse(let response): return response
        case .poll:
            self.poll(number, reply)
            return nil
        case .send:
            self.receive(body)
            self.readComplete()
            return .sent
        case .delete:
            self.performPolling { $0.delete() }
            return .deleted
        case .create, .attach, .reattach: return .refusal(409)
        }
    }

    /// A GET of long polling arrived.
    func poll(_ number: UInt64, _ reply: SignalRReply) {
        self.polls[number] = reply
        self.performPolling { $0.poll(number, now: SignalRLoop.now) }
        guard let proven = self.polling?.recordsProven else { return }
        let proofs = self.marks.prefix { $0.records <= proven }
        self.marks.removeFirst(proofs.count)
        if let last = proofs.last { self.proven(last.number) }
    }

    /// A GET's client left before the answer.
    func pollLost(_ number: UInt64) {
        self.polls[number] = nil
        self.performPolling { $0.pollLost(number, now: SignalRLoop.now) }
    }

    func performPolling(_ event: (inout SignalRPollingState) -> [SignalRPollingAction]) {
        guard var polling = self.polling else { return }
        let actions = event(&polling)
        self.polling = polling
        for action in actions {
            switch action {
            case .answer(let poll, let response): self.polls.removeValue(forKey: poll)?.send(response)
            case .end(let end):
                if end == .overflow { self.tooSlow() }
                self.transportLost()
                self.finish()
            }
        }
    }
}
