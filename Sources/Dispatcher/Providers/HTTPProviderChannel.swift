// Carillon · HTTPProviderChannel.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A channel that sends each message as one HTTP request.
protocol HTTPProviderChannel: ProviderChannel {
    var transfer: TransferClient { get }

    /// Creates the request for one device.
    ///
    /// - Throws: ``CredentialFault`` if no credential is available, ``CredentialOutage`` if that is
    ///   temporary, or ``MessageRefusal``.
    func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest

    /// Maps an answer; nil if it is not the provider's, so that the outcome is unknown.
    func read(_ response: TransferResponse, now: Timestamp) -> ProviderAnswer?

    /// Invalidates the expired credential of `request`.
    ///
    /// - Returns: whether a different one is available at once.
    func renewCredential(of request: ProviderRequest) async -> Bool

    /// Returns whether the provider asked for a pause only because the credential of `request` was
    /// replaced before it arrived.
    func hasReplacedCredential(of request: ProviderRequest, refusedFor reason: String) async -> Bool

    var now: @Sendable () -> Timestamp { get }

    /// The URLs of the provider's hosts; empty if devices name them.
    var addresses: [String] { get }
    /// Whether the hosts must speak HTTP/2.
    var needsHTTP2: Bool { get }
    /// Whether requests carry trace headers.
    var carriesTraces: Bool { get }
    /// The time limit for an answer; nil means the default of 30 s.
    var timeout: Duration? { get }
}

extension HTTPProviderChannel {
    /// Known providers answer within seconds.
    private static var patience: Duration { .seconds(30) }

    func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
        let first = await self.attempt(message, device)
        guard let request = first.request, await self.hasOtherCredential(for: request, after: first.reply) else {
            return first.reply.afterRenewal
        }
        return await self.attempt(message, device).reply.afterRenewal
    }

    /// Returns whether the reply is about the request's credential, and another is available.
    private func hasOtherCredential(for request: ProviderRequest, after reply: ProviderReply) async -> Bool {
        switch reply.result {
        case .answered(.staleCredential): await self.renewCredential(of: request)
        case .answered(.slowDown(let reason, _)): await self.hasReplacedCredential(of: request, refusedFor: reason)
        default: false
        }
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
            request, timeout: self.timeout ?? Self.patience, priority: TransferPriority(message.lane),
            mayStart: message.mayStart)
        switch await self.transfer.perform(transfer) {
        case .answered(let response):
            let sent = request
            let answer = self.read(response, now: self.now())
            let result =
                answer.map { ProviderReply.Result.answered($0) }
                ?? .unanswered(reason: "not_understood", mayHaveBeenSent: true)
            return (ProviderReply(result, transcript: response.transcript { sent.withoutCredential($0) }), request)
        case .unanswered(let failure) where failure.reason == .privateAddress:
            // A retry would end the same way.
            return (ProviderReply(.unsendable(reason: "private_address"), transcript: "not sent"), nil)
        case .unanswered(let failure) where failure.reason == .invalidRequest && self.service(of: device) != nil:
            // The device names the URL, and no request can go there.
            return (ProviderReply(.unsendable(reason: "token_malformed"), transcript: "not sent"), nil)
        case .unanswered(let failure) where failure.reason == .fenced:
            return (ProviderReply(.fenced, transcript: "not sent"), nil)
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
    /// Turns a rejected new credential into a configuration fault.
    fileprivate var afterRenewal: ProviderReply {
        guard case .answered(.staleCredential(let reason)) = self.result else { return self }
        return ProviderReply(.answered(.configuration(reason: reason)), transcript: self.transcript)
    }
}

extension ProviderRequest {
    /// The token of the `authorization` header, without the scheme; nil if there is none.
    var credential: String? {
        guard let value = self.headers.first(where: { $0.name == "authorization" })?.value,
            let space = value.firstIndex(of: " ")
        else { return nil }
        return String(value[space...].dropFirst())
    }

    /// Removes this request's credential from a text, since a server may echo it.
    fileprivate func withoutCredential(_ text: String) -> String {
        guard let value = self.headers.first(where: { $0.name == "authorization" })?.value else { return text }
        // The scheme is not secret; every part after it is.
        return value.split(whereSeparator: { " ,=".contains($0) }).filter { $0.utf8.count >= 16 }
            .reduce(text) { $0.hiding($1) }
    }
}

/// The reason why no message can be made for a device.
struct MessageRefusal: Error, Sendable, Equatable {
    let reason: String

    init(_ reason: String) {
        self.reason = reason
    }
}

extension TransferRequest {
    init(
        _ request: ProviderRequest,
        timeout: Duration,
        priority: TransferPriority,
        mayStart: (@Sendable () -> Bool)? = nil
    ) {
        self.init(
            .post,
            url: request.url,
            headers: request.headers,
            body: request.body,
            timeout: timeout,
            priority: priority,
            mayStart: mayStart
        )
    }
}

extension TransferResponse {
    /// The limit of a body in a transcript, in bytes.
    private static let shown = 2_048
    private static let shownOfField = 256
    /// The fields that tell more about a message than the status.
    private static let shownFields = ["content-type", "retry-after", "apns-id", "apns-unique-id", "location"]

    /// Returns status, selected fields and body for people; cuts long texts and says how much is
    /// missing.
    ///
    /// - Parameter hidden: removes secrets from a text. It runs before the cut, since part of a
    ///   secret is secret too.
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

    /// Whether the body is an HTML page, probably from a proxy.
    ///
    /// The content type alone does not count: Google's push service sets it on empty bodies.
    var isPage: Bool {
        !self.body.isEmpty && self.header("content-type")?.lowercased().hasPrefix("text/html") == true
    }

    /// Parses the Retry-After header (RFC 9110 section 10.2.3): whole seconds or a date.
    package func retryAfter(now: Timestamp) -> Duration? {
        guard let text = self.header("retry-after") else { return nil }
        if let seconds = Int64(text) { return .seconds(min(max(seconds, 0), 86_400)) }
        guard let moment = Timestamp(httpDate: text) else { return nil }
        return min(max(moment - now, .zero), .seconds(86_400))
    }
}

extension HTTPProviderChannel {
    var addresses: [String] { [] }
    var needsHTTP2: Bool { false }
    var carriesTraces: Bool { true }

    /// For providers whose answers report no expired credential.
    func renewCredential(of request: ProviderRequest) async -> Bool { false }

    /// For providers that take requests with a replaced credential until it expires.
    func hasReplacedCredential(of request: ProviderRequest, refusedFor reason: String) async -> Bool { false }

    /// Checks TCP, TLS and HTTP for each address; any answer to a GET will do.
    func probe() async -> [ProviderProbe] {
        var probes: [ProviderProbe] = []
        for address in self.addresses { probes.append(await self.probe(address)) }
        return probes
    }

    func probe(_ address: String) async -> ProviderProbe {
        let request = TransferRequest(.get, url: address, timeout: .seconds(10), maximumResponseBytes: 1_048_576)
        switch await self.transfer.perform(request) {
        case .answered(let response) where self.needsHTTP2 && response.version != .http2:
            return ProviderProbe(address, fault: "answers over HTTP/\(response.version.rawValue); HTTP/2 is required")
        case .answered: return ProviderProbe(address, fault: nil)
        case .unanswered(let failure) where failure.reason == .responseTooLarge:
            return ProviderProbe(address, fault: nil)
        case .unanswered(let failure): return ProviderProbe(address, fault: failure.reason.rawValue)
        }
    }
}

/// An HTTP request to a provider, ready to send.
struct ProviderRequest: Sendable, Equatable {
    var url: String
    var headers: [(name: String, value: String)]
    var body: [UInt8]

    static func == (left: ProviderRequest, right: ProviderRequest) -> Bool {
        left.url == right.url && left.body == right.body
            && left.headers.map { "\($0.name): \($0.value)" } == right.headers.map { "\($0.name): \($0.value)" }
    }
}

extension TransferPriority {
    /// Maps a lane to its priority; critical messages go first.
    init(_ lane: Lane) {
        self =
            switch lane {
            case .critical: .high
            case .normal: .normal
            case .bulk: .low
            }
    }
}
