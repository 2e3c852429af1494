// Carillon · WebhookEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation
import NIOCore
import NIOHPACK

/// An app's own receiver of notifications, as its documentation asks for it.
struct WebhookEndpoint: Sendable {
    static let path = "/webhook"
    /// The key of signatures, which a receiver and its sender share.
    static let secret = "a secret that the sandbox shares"
    /// Older signatures may be somebody's who repeats what was overheard.
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
            let answer = fault?.answer(to: request, slowDelay: self.configuration.slowDelay) {
                self.accept(token, request, at: now)
            }
            return answer ?? .respond(self.accept(token, request, at: now))
        } catch {
            self.log.refuse(.webhook, name: "\(error.status) \(error.message)")
            return .respond(error.response(retryAfter: self.configuration.retryAfter))
        }
    }

    /// Every rule; returns the token.
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
        guard let body = try? JSONReader.parse(request.body) else { throw WebhookRefusal(400, "the body is no JSON") }
        for name in ["user", "device", "token", "app", "tag"] where body.member(name)?.text?.isEmpty != false {
            throw WebhookRefusal(400, "\(name) must be text")
        }
        guard let delivery = body.member("delivery")?.text, UUID(uuidString: delivery) != nil,
            delivery == request.headers.first(name: Self.delivery)
        else { throw WebhookRefusal(400, "delivery must be a UUID, and that of the header") }
        guard (body.member("notification") == nil) != (body.member("retract") == nil) else {
            throw WebhookRefusal(400, "either notification or retract")
        }
        if let notification = body.member("notification") {
            for name in ["id", "type", "severity", "title", "body", "created_at"]
            where notification.member(name)?.text == nil {
                throw WebhookRefusal(400, "notification.\(name) must be text")
            }
        }
        return body.member("token")?.text ?? ""
    }

    /// `t=<seconds>,v1=<hexadecimal>`.
    private static func checkSignature(_ text: String, of body: [UInt8], at now: Date) throws(WebhookRefusal) {
        let parts = text.split(separator: ",").map { $0.split(separator: "=", maxSplits: 1) }
        guard parts.count == 2, parts.allSatisfy({ $0.count == 2 }), parts[0][0] == "t", parts[1][0] == "v1",
            let seconds = Int(parts[0][1]), abs(now.timeIntervalSince1970 - Double(seconds)) <= Self.tolerance
        else { throw WebhookRefusal(401, "the signature's form or time is wrong") }
        let key = SymmetricKey(data: Data(Self.secret.utf8))
        let code = HMAC<SHA256>.authenticationCode(for: Data("\(parts[0][1]).".utf8) + Data(body), using: key)
        let digits = code.map { String(format: "%02x", $0) }.joined()
        guard digits == parts[1][1] else { throw WebhookRefusal(401, "the signature is not by our secret") }
    }

    private func accept(_ token: String, _ request: SandboxRequest, at now: Date) -> SandboxResponse {
        self.log.accept(.webhook, token: token, request: request, at: now)
        return .json(200, JSONText.object([("id", UUID().uuidString.lowercased())]))
    }
}
