// Carillon · WebPushEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import NIOCore
import NIOHPACK

/// A push service's `POST /push/<id>/<mark of the key>` (RFC 8030, 8188, 8291, 8292).
struct WebPushEndpoint: Sendable {
    private static let longestBody = 4_096
    private static let longestTimeToLive = 2_419_200
    private static let urgencies = ["very-low", "low", "normal", "high"]

    private let verifier = VAPIDVerifier()
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
        do throws(WebPushRefusal) {
            let (id, origin) = try self.check(request, at: now)
            let fault = self.faults.fault(forWebPush: id)
            if case .webPush(let refusal) = fault { throw refusal }
            if case .cut = fault { self.log.cut(.webpush, token: id, request: request, at: now) }
            let answer = fault?.answer(to: request, slowDelay: self.configuration.slowDelay) {
                self.accept(id, request, origin, at: now)
            }
            return answer ?? .respond(self.accept(id, request, origin, at: now))
        } catch {
            self.log.refuse(.webpush, name: "\(error.status) \(error.message)")
            return .respond(error.response(retryAfter: self.configuration.retryAfter, now: now))
        }
    }

    /// Every rule; returns the subscription's name and our own origin.
    private func check(
        _ request: SandboxRequest, at now: Date
    ) throws(WebPushRefusal) -> (id: String, origin: String) {
        guard request.method == "POST" else { throw WebPushRefusal(405, 0, "Method Not Allowed", "Only POST") }
        let parts = request.path.dropFirst(SandboxSubscription.path.count)
            .split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, SandboxSubscription.isID(parts[0]), parts[1].utf8.count == 22 else { throw .notFound }
        let host = request.headers.first(name: ":authority") ?? request.headers.first(name: "host") ?? ""
        let origin = "https://\(host)"
        let authorization = request.headers.first(name: "authorization")
        try self.verifier.check(authorization, origin: origin, mark: String(parts[1]), at: now)
        try Self.checkHeaders(request.headers)
        guard request.body.count <= Self.longestBody, !request.isTruncated else { throw .tooLarge }
        try Self.checkBody(request)
        return (String(parts[0]), origin)
    }

    private static func checkHeaders(_ headers: HPACKHeaders) throws(WebPushRefusal) {
        for name in ["ttl", "urgency", "topic", "content-encoding"] where headers[name].count > 1 {
            throw .badRequest("\(name) occurs twice")
        }
        guard let text = headers.first(name: "ttl"), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
            let seconds = Int(text), seconds <= Self.longestTimeToLive
        else { throw .badRequest("TTL must be whole seconds of four weeks at most") }
        if let urgency = headers.first(name: "urgency"), !Self.urgencies.contains(urgency) {
            throw .badRequest("Urgency must be one of \(Self.urgencies.joined(separator: ", "))")
        }
        if let topic = headers.first(name: "topic") {
            guard (1...32).contains(topic.utf8.count), topic.utf8.allSatisfy(SandboxSubscription.isBase64URL) else {
                throw .badRequest("Topic must be 32 characters of base64url at most")
            }
        }
    }

    private static func checkBody(_ request: SandboxRequest) throws(WebPushRefusal) {
        // A message without a body wakes the page up, and says nothing.
        if request.body.isEmpty { return }
        guard request.headers.first(name: "content-encoding") == "aes128gcm" else {
            throw .badRequest("Content-Encoding must be aes128gcm")
        }
        guard let content = try? EncryptedContent(request.body), content.keyID.count == 65, content.keyID.first == 4,
            content.recordCount == 1
        else { throw .badRequest("The body is no message of aes128gcm") }
    }

    private func accept(_ id: String, _ request: SandboxRequest, _ origin: String, at now: Date) -> SandboxResponse {
        self.log.accept(.webpush, token: id, request: request, at: now)
        return SandboxResponse(
            status: 201,
            headers: [
                ("location", "\(origin)/message/\(UUID().uuidString.lowercased())"),
                // As Google's has it, on a body without a byte.
                ("content-type", "text/html; charset=UTF-8"),
                ("ttl", request.headers.first(name: "ttl") ?? "0"),
            ])
    }
}
