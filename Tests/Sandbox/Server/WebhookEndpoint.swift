// Carillon · WebhookEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import NIOCore
import NIOHPACK

/// An app's webhook receiver that follows the documentation.
struct WebhookEndpoint: Sendable {
    static let path = "/webhook"
    /// The secret that receiver and sender share.
    static let secret = "a secret that the sandbox shares"
    /// The largest age of a signature in seconds, against replays.
    private static let tolerance = 300.0
    private static let signature = "carillon-signature"
    private static let delivery = "carillon-delivery"

    private let faults: FaultTable
    private let log: ReceivedLog
    private let configuration: SandboxConfiguration

    init(faults: FaultTable, log: ReceivedLog, _ configuration: SandboxConfiguration) {
        self.faults = faults
        self.log = log
        self.configuration = configuration
    }

    func answer(_ request: SandboxRequest) -> SandboxAnswer {
        let now = self.configuration.clock()
        do throws(WebhookRefusal) {
            let token = try self.check(request, at: now)
            let fault = self.faults.fault(forWebhook: token)
            if case .webhook(let refusal) = fault { throw refusal }
            if case .cut = fault { self.log.cut(.webhook, token: token, request: request, at: now) }
            let answer = fault?.answer(to: request, slowPause: self.configuration.slowPause) {
                self.accept(token, request, at: now)
            }
            return answer ?? .respond(self.accept(token, request, at: now))
        } catch {
            self.log.refuse(.webhook, name: "\(error.status) \(error.message)")
            return .respond(error.response(retryAfter: self.configuration.retryAfter))
        }
    }

    /// Checks a request and returns its token.
    private func check(_ request: SandboxRequest, at now: Date) throws(WebhookRefusal) -> String {
        guard request.method == "POST" else { throw WebhookRefusal(405, "only POST") }
        guard !request.isTruncated else { throw WebhookRefusal(413, "the body is too large") }
        for name in [Self.signature, Self.delivery, "content-type"] where request.headers[name].count != 1 {
            throw WebhookRefusal(400, "\(name) must occur once")
        }
        try Self.checkSignature(request.headers.first(name: Self.signature) ?? "", of: request.body, at: now)
        guard request.headers.first(name: "content-type") == "application/json" else {
            throw WebhookRefusal(415, "the body must be application/json")
        }
        guard let body = try? JSONParser.parse(request.body) else { throw WebhookRefusal(400, "the body is not JSON") }
        for name in ["user", "device", "token", "app", "tag"] where body.member(name)?.string?.isEmpty != false {
            throw WebhookRefusal(400, "\(name) must be text")
        }
        guard let delivery = body.member("delivery")?.string, UUID(uuidString: delivery) != nil,
            delivery == request.headers.first(name: Self.delivery)
        else { throw WebhookRefusal(400, "delivery must be the UUID of the \(Self.delivery) header") }
        guard (body.member("notification") == nil) != (body.member("retract") == nil) else {
            throw WebhookRefusal(400, "exactly one of notification and retract is required")
        }
        if let notification = body.member("notification") {
            for name in ["id", "type", "severity", "title", "body", "created_at"]
            where notification.member(name)?.string == nil {
                throw WebhookRefusal(400, "notification.\(name) must be text")
            }
        }
        return body.member("token")?.string ?? ""
    }

    /// Checks the header `t=<seconds>,v1=<hexadecimal>`.
    private static func checkSignature(_ text: String, of body: [UInt8], at now: Date) throws(WebhookRefusal) {
        let parts = text.split(separator: ",").map { $0.split(separator: "=", maxSplits: 1) }
        guard parts.count == 2, parts.allSatisfy({ $0.count == 2 }), parts[0][0] == "t", parts[1][0] == "v1",
            let seconds = Int(parts[0][1]), abs(now.timeIntervalSince1970 - Double(seconds)) <= Self.tolerance
        else { throw WebhookRefusal(401, "the signature is malformed or too old") }
        let key = SymmetricKey(data: Data(Self.secret.utf8))
        let code = HMAC<SHA256>.authenticationCode(for: Data("\(parts[0][1]).".utf8) + Data(body), using: key)
        let digits = code.map { String(format: "%02x", $0) }.joined()
        guard digits == parts[1][1] else { throw WebhookRefusal(401, "the signature does not match") }
    }

    private func accept(_ token: String, _ request: SandboxRequest, at now: Date) -> SandboxResponse {
        self.log.accept(.webhook, token: token, request: request, at: now)
        return .json(200) { $0.member("id", UUID().uuidString.lowercased()) }
    }
}

/// An error response of a webhook receiver.
struct WebhookRefusal: Error {
    let status: Int
    let message: String
    /// Whether the response has a `Retry-After`.
    let isTemporary: Bool

    init(_ status: Int, _ message: String, isTemporary: Bool = false) {
        self.status = status
        self.message = message
        self.isTemporary = isTemporary
    }

    /// Returns the response with the configured delay.
    func response(retryAfter: Int) -> SandboxResponse {
        var headers = self.isTemporary ? [("retry-after", String(retryAfter))] : []
        if (300..<400).contains(self.status) { headers.append(("location", "/elsewhere")) }
        return .json(self.status, headers: headers) { $0.member("error", self.message) }
    }
}
