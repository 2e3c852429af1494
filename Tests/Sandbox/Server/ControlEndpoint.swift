// Carillon · ControlEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

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
            return .json(
                200,
                #"{"accepted":\#(JSONText.object(counts.accepted)),"refused":\#(JSONText.object(counts.refused)),"#
                    + #""kept":\#(counts.kept),"dropped":\#(counts.dropped),"next":\#(counts.next)}"#)
        case ("DELETE", "/received"):
            self.log.reset()
            self.attempts.reset()
            return SandboxResponse(status: 204)
        case ("GET", "/attempts"):
            return .json(200, JSONText.object(self.attempts.counts))
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
            let headers = message.headers.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
            body.writeString(index == 0 ? "\n" : ",\n")
            body.writeString(#"{"provider":"\#(message.provider)","#)
            if let project = message.project { body.writeString(#""project":\#(JSONText.quoted(project)),"#) }
            body.writeString(#""token":\#(JSONText.quoted(message.token)),"#)
            body.writeString(#""headers":\#(JSONText.object(headers)),"payload":"#)
            body.writeBytes(message.payload)
            body.writeString(#","at":"\#(style.format(message.at))","sequence":\#(message.sequence)}"#)
        }
        body.writeString("\n]\n")
        let type = ("content-type", "application/json; charset=UTF-8")
        let dropped = ("x-dropped", String(self.log.counts.dropped))
        return SandboxResponse(status: 200, headers: [type, dropped], body: body)
    }
}
