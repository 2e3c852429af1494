// Carillon · WebPushEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import NIOCore
import NIOHPACK

/// A push service's `POST /push/<id>/<hash of the key>` (RFC 8030, 8188, 8291, 8292).
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
            let answer = fault?.answer(to: request, slowPause: self.configuration.slowPause) {
                self.accept(id, request, origin, at: now)
            }
            return answer ?? .respond(self.accept(id, request, origin, at: now))
        } catch {
            self.log.refuse(.webpush, name: "\(error.status) \(error.message)")
            return .respond(error.response(retryAfter: self.configuration.retryAfter, now: now))
        }
    }

    /// Checks a request and returns the subscription's name and the sandbox's origin.
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
        else { throw .badRequest("TTL must be 0 to 2419200 seconds") }
        if let urgency = headers.first(name: "urgency"), !Self.urgencies.contains(urgency) {
            throw .badRequest("Urgency must be one of \(Self.urgencies.joined(separator: ", "))")
        }
        if let topic = headers.first(name: "topic") {
            guard (1...32).contains(topic.utf8.count), topic.utf8.allSatisfy(SandboxSubscription.isBase64URL) else {
                throw .badRequest("Topic must be 1 to 32 base64url characters")
            }
        }
    }

    private static func checkBody(_ request: SandboxRequest) throws(WebPushRefusal) {
        // A message without a body is allowed: it only wakes the page.
        if request.body.isEmpty { return }
        guard request.headers.first(name: "content-encoding") == "aes128gcm" else {
            throw .badRequest("Content-Encoding must be aes128gcm")
        }
        guard let content = try? EncryptedContent(request.body), content.keyID.count == 65, content.keyID.first == 4,
            content.recordCount == 1
        else { throw .badRequest("The body is not aes128gcm content") }
    }

    private func accept(_ id: String, _ request: SandboxRequest, _ origin: String, at now: Date) -> SandboxResponse {
        self.log.accept(.webpush, token: id, request: request, at: now)
        return SandboxResponse(
            status: 201,
            headers: [
                ("location", "\(origin)/message/\(UUID().uuidString.lowercased())"),
                // Google sends this type even with an empty body.
                ("content-type", "text/html; charset=UTF-8"),
                ("ttl", request.headers.first(name: "ttl") ?? "0"),
            ])
    }
}

/// An error response of a push service, in Mozilla's format.
struct WebPushRefusal: Error {
    /// The format of Retry-After (RFC 9110 section 10.2.3).
    enum Delay {
        case seconds, date
    }

    let status: Int
    let number: Int
    let name: String
    let message: String
    var delay: Delay?
    var location: String?
    /// Apple's reason, which replaces Mozilla's format.
    var reason: String?

    init(_ status: Int, _ number: Int, _ name: String, _ message: String, delay: Delay? = nil, location: String? = nil)
    {
        self.status = status
        self.number = number
        self.name = name
        self.message = message
        self.delay = delay
        self.location = location
    }

    static func badRequest(_ message: String) -> WebPushRefusal { .init(400, 111, "Bad Request", message) }
    static func unauthorized(_ message: String) -> WebPushRefusal { .init(401, 109, "Unauthorized", message) }

    static let keyMismatch: WebPushRefusal = {
        var refusal = WebPushRefusal(400, 0, "Bad Request", "VapidPkHashMismatch")
        refusal.reason = "VapidPkHashMismatch"
        return refusal
    }()
    static let throttled = WebPushRefusal(406, 0, "Not Acceptable", "The app is throttled", delay: .seconds)
    static let timeout = WebPushRefusal(408, 0, "Request Timeout", "The request took too long")
    static let misdirected = WebPushRefusal(421, 0, "Misdirected Request", "Another server has this service")
    static let tooEarly = WebPushRefusal(425, 0, "Too Early", "The request may be a replay")
    static let notFound = WebPushRefusal(404, 102, "Not Found", "No such subscription")
    static let gone = WebPushRefusal(410, 106, "Gone", "Request did not validate: no such subscriber")
    static let forbidden = WebPushRefusal(403, 109, "Forbidden", "The key does not match the subscription")
    static let tooLarge = WebPushRefusal(413, 104, "Payload Too Large", "The body has more than 4096 bytes")
    static let limited = WebPushRefusal(429, 0, "Too Many Requests", "Slow down", delay: .seconds)
    static let crowded = WebPushRefusal(429, 0, "Too Many Requests", "Slow down")
    static let conflict = WebPushRefusal(409, 0, "Conflict", "Conflict")
    static let badGateway = WebPushRefusal(502, 0, "Bad Gateway", "Bad gateway")
    static let limitedByDate = WebPushRefusal(429, 0, "Too Many Requests", "Slow down", delay: .date)
    static let internalError = WebPushRefusal(500, 999, "Internal Server Error", "An unknown error occurred")
    static let unavailable = WebPushRefusal(503, 201, "Service Unavailable", "Come back later", delay: .seconds)
    static let moved = WebPushRefusal(307, 0, "Temporary Redirect", "Moved", location: "/elsewhere")

    /// Returns the response with the configured delay.
    func response(retryAfter: Int, now: Date) -> SandboxResponse {
        var headers: [(String, String)] = []
        switch self.delay {
        case nil: break
        case .seconds: headers.append(("retry-after", String(retryAfter)))
        case .date: headers.append(("retry-after", Self.httpDate(now.addingTimeInterval(Double(retryAfter)))))
        }
        if let location { headers.append(("location", location)) }
        if let reason { return .json(self.status, headers: headers) { $0.member("reason", reason) } }
        return .json(self.status, headers: headers) { writer in
            writer.member("code", self.status)
            writer.member("errno", self.number)
            writer.member("error", self.name)
            writer.member("message", self.message)
        }
    }

    private static func httpDate(_ date: Date) -> String {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(secondsFromGMT: 0)
        formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        return formatter.string(from: date)
    }
}
