// Carillon · ControlEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import NIOCore

/// The control calls, with which tests inspect and steer the sandbox.
struct ControlEndpoint: Sendable {
    /// The calls, for `--help`.
    static let help = """
          GET /healthz         200 once the sandbox listens
          GET /received        accepted messages, oldest first: provider, project
                               (of FCM's path and access token), token, headers,
                               payload, at, sequence; ?since=N starts at a
                               sequence, ?limit=N returns at most N
          GET /received/count  counts: accepted, refused, kept, dropped; and next
          DELETE /received     clears messages, counts and attempts
          GET /attempts        the attempts for each token with a fault
          GET /subscriptions   a browser's subscription as JSON: ?id=NAME (letters,
                               digits, - and _) and &key=PUBLIC-KEY (VAPID,
                               base64url); the same name has the same keys
          DELETE /tokens       revokes all access tokens: FCM then answers 401
          PUT /tokens          makes token requests fail: ?fault=unavailable (502),
                               limited (429), torn (half a 200), silent or refused
                               (400 invalid_grant); without fault they work again
        """

    private let log: ReceivedLog
    private let attempts: AttemptLedger
    private let tokens: AccessTokens
    private let location: SandboxLocation

    init(log: ReceivedLog, attempts: AttemptLedger, tokens: AccessTokens, location: SandboxLocation) {
        self.log = log
        self.attempts = attempts
        self.tokens = tokens
        self.location = location
    }

    func respond(to request: SandboxRequest) -> SandboxResponse {
        switch (request.method, request.path) {
        case ("GET", "/healthz"):
            return .plain(200, "ok")
        case ("GET", "/received"):
            let since = request.number(inQuery: "since") ?? 0
            let limit = request.number(inQuery: "limit") ?? .max
            return self.list(self.log.messages(since: max(0, since), limit: max(0, limit)))
        case ("GET", "/received/count"):
            let counts = self.log.counts
            return .json(200) { writer in
                writer.object("accepted") { Self.write(counts.accepted, to: &$0) }
                writer.object("refused") { Self.write(counts.refused, to: &$0) }
                writer.member("kept", counts.kept)
                writer.member("dropped", counts.dropped)
                writer.member("next", counts.next)
            }
        case ("DELETE", "/received"):
            self.log.reset()
            self.attempts.reset()
            return SandboxResponse(status: 204)
        case ("GET", "/attempts"):
            return .json(200) { Self.write(self.attempts.counts, to: &$0) }
        case ("GET", "/subscriptions"):
            guard let id = request.text(inQuery: "id"), SandboxSubscription.isID(id),
                let key = request.text(inQuery: "key").flatMap({ JSONWebToken.decode($0.utf8) }), key.count == 65
            else { return .plain(400, "id: letters, digits, - and _; key: a VAPID public key in base64url") }
            let subscription = SandboxSubscription(id: id, origin: self.location.url, applicationServerKey: key)
            return .json(200, subscription.json)
        case ("DELETE", "/tokens"):
            self.tokens.revokeAll()
            return SandboxResponse(status: 204)
        case ("PUT", "/tokens"):
            let word = request.text(inQuery: "fault")
            let fault = word.flatMap { TokenFault(rawValue: $0) }
            guard word == nil || fault != nil else { return .plain(400, "fault: unknown; see --help") }
            self.tokens.fault = fault
            return SandboxResponse(status: 204)
        default:
            return .plain(404, "The requested URL was not found on this server.")
        }
    }

    private func list(_ messages: [ReceivedMessage]) -> SandboxResponse {
        var body = ByteBuffer(string: "[")
        let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
        for (index, message) in messages.enumerated() {
            body.writeString(index == 0 ? "\n" : ",\n")
            var writer = JSONWriter()
            writer.beginObject()
            writer.member("provider", message.provider.rawValue)
            if let project = message.project { writer.member("project", project) }
            writer.member("token", message.token)
            writer.object("headers") { writer in
                for (name, value) in message.headers.sorted(by: { $0.key < $1.key }) {
                    writer.key(escaping: name)
                    writer.string(value)
                }
            }
            writer.key("payload")
            writer.raw(message.payload)
            writer.member("at", style.format(message.at))
            writer.member("sequence", message.sequence)
            writer.endObject()
            body.writeBytes(writer.bytes)
        }
        body.writeString("\n]\n")
        let dropped = ("x-dropped", String(self.log.counts.dropped))
        return SandboxResponse(status: 200, headers: [SandboxResponse.jsonType, dropped], body: body)
    }

    private static func write(_ counts: [String: Int], to writer: inout JSONWriter) {
        for (name, count) in counts.sorted(by: { $0.key < $1.key }) {
            writer.key(escaping: name)
            writer.integer(count)
        }
    }
}
