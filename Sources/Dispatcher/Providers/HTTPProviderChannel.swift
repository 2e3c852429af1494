// Carillon · HTTPProviderChannel.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A way to a provider that takes one HTTP request a message.
package protocol HTTPProviderChannel: ProviderChannel {
    var transfer: TransferClient { get }

    /// The request for one device.
    ///
    /// - Throws: ``CredentialFault`` if there is no credential to be had, ``CredentialOutage`` if there is none for now, or
    ///   ``MessageRefusal``.
    func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest

    /// What an answer means; nil if it makes no sense, so that whether the provider has the message is not known.
    func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer?

    /// The provider says that the credential in `request` has expired.
    ///
    /// - Returns: whether another one can be had at once.
    func renewCredential(of request: ProviderRequest) async -> Bool

    var now: @Sendable () -> Timestamp { get }

    /// The URLs of the hosts that it calls; none where devices name them.
    var addresses: [String] { get }
    /// Whether its hosts have to speak HTTP/2.
    var needsHTTP2: Bool { get }
    /// Whether its calls tell which trace they belong to.
    var carriesTraces: Bool { get }
    /// How long an answer is waited for; nil for what providers take at most.
    var timeout: Duration? { get }
}

extension HTTPProviderChannel {
    /// A provider may take its time; the known ones answer within seconds.
    private static var patience: Duration { .seconds(30) }

    package func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
        let first = await self.attempt(message, device)
        guard case .answered(.staleCredential) = first.reply.result, let request = first.request,
            await self.renewCredential(of: request)
        else { return first.reply.afterRenewal }
        return await self.attempt(message, device).reply.afterRenewal
    }

    private func attempt(_ message: PushMessage, _ device: Device) async -> (
        reply: ProviderReply, request: ProviderRequest?
    ) {
        var request: ProviderRequest
        do {
            request = try await self.request(message, device: device)
            if self.carriesTraces, let traceParent = message.notification.extras.traceParent {
                request.headers.append(("traceparent", traceParent))
            }
        } catch let refusal as MessageRefusal {
            return (ProviderReply(.unsendable(reason: refusal.reason), transcript: "not sent"), nil)
        } catch let outage as CredentialOutage {
            let result = ProviderReply.Result.unanswered(reason: outage.reason, mayHaveBeenSent: false)
            return (ProviderReply(result, transcript: "not sent: \(outage.reason)"), nil)
        } catch {
            return (ProviderReply(.noCredential(reason: "\(error)")), nil)
        }
        let transfer = TransferRequest(
            request, timeout: self.timeout ?? Self.patience, priority: TransferPriority(message.lane))
        switch await self.transfer.perform(transfer) {
        case .answered(let response):
            let sent = request
            let answer = self.read(response, now: self.now())
            let result =
                answer.map { ProviderReply.Result.answered($0) }
                ?? .unanswered(reason: "not_understood", mayHaveBeenSent: true)
            return (ProviderReply(result, transcript: response.transcript { sent.withoutCredential($0) }), request)
        case .unanswered(let failure) where failure.reason == .privateAddress:
            // Another try would end the same way.
            return (ProviderReply(.unsendable(reason: "private_address"), transcript: "not sent"), nil)
        case .unanswered(let failure) where failure.neverHadTurn:
            return (ProviderReply(.noTurn, transcript: "not sent"), nil)
        case .unanswered(let failure):
            let result = ProviderReply.Result.unanswered(
                reason: failure.reason.rawValue, mayHaveBeenSent: failure.mayHaveBeenSent)
            return (ProviderReply(result, transcript: "no answer: \(failure.reason.rawValue)"), request)
        }
    }
}

extension ProviderReply {
    /// The same when no newer credential can be had: one that is refused though it is new is a fault of the configuration.
    fileprivate var afterRenewal: ProviderReply {
        guard case .answered(.staleCredential(let reason)) = self.result else { return self }
        return ProviderReply(.answered(.configuration(reason: reason)), transcript: self.transcript)
    }
}

extension ProviderRequest {
    /// An answer's text without this request's credential, which a server may repeat.
    fileprivate func withoutCredential(_ text: String) -> String {
        guard let value = self.headers.first(where: { $0.name == "authorization" })?.value else { return text }
        // The scheme is no secret, and what follows it is one in all of its parts.
        return value.split(whereSeparator: { " ,=".contains($0) }).filter { $0.utf8.count >= 16 }
            .reduce(text) { $0.replacing($1, with: "…") }
    }
}

/// Why a message cannot be made for a device at all.
package struct MessageRefusal: Error, Sendable, Equatable {
    package let reason: String

    package init(_ reason: String) {
        self.reason = reason
    }
}

extension TransferRequest {
    init(_ request: ProviderRequest, timeout: Duration, priority: TransferPriority) {
        self.init(
            .post,
            url: request.url,
            headers: request.headers,
            body: request.body,
            timeout: timeout,
            priority: priority
        )
    }
}

extension TransferResponse {
    /// What is shown of an answer's body.
    private static let shown = 2_048
    private static let shownOfField = 256
    /// The fields that say more about a message than the status does.
    private static let shownFields = ["content-type", "retry-after", "apns-id", "apns-unique-id", "location"]

    /// Status, the fields that matter and body, for a person; what is too long ends with how much more there was.
    ///
    /// - Parameter hidden: a text without what nobody is to see, which comes before the cut: a part of a secret is one too.
    func transcript(_ hidden: (String) -> String) -> String {
        var lines = ["HTTP/\(self.version.rawValue) \(self.status)"]
        for name in Self.shownFields {
            guard let value = self.header(name) else { continue }
            lines.append("\(name): \(Self.beginning(of: hidden(value), bytes: Self.shownOfField))")
        }
        let body = hidden(String(decoding: self.body, as: UTF8.self))
        if !body.isEmpty { lines += ["", Self.beginning(of: body, bytes: Self.shown)] }
        return lines.joined(separator: "\n")
    }

    private static func beginning(of text: String, bytes: Int) -> String {
        var room = bytes
        let kept = text.prefix { character in
            room -= character.utf8.count
            return room >= 0
        }
        let rest = text.utf8.count - kept.utf8.count
        return rest == 0 ? text : "\(kept)… (\(rest) bytes more)"
    }

    /// Whether the body is a page for people, as what stands in between answers.
    ///
    /// The label alone says nothing: Google's push service puts it on bodies without a byte.
    var isPage: Bool {
        !self.body.isEmpty && self.header("content-type")?.lowercased().hasPrefix("text/html") == true
    }

    /// The Retry-After header (RFC 9110 section 10.2.3): whole seconds, or a moment.
    package func retryAfter(now: Timestamp) -> Duration? {
        guard let text = self.header("retry-after") else { return nil }
        if let seconds = Int64(text) { return .seconds(min(max(seconds, 0), 86_400)) }
        guard let moment = Timestamp(httpDate: text) else { return nil }
        return min(max(moment - now, .zero), .seconds(86_400))
    }
}
