// Carillon · FaultTable.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Synchronization

/// The faults that device tokens choose; `help` prints them.
struct FaultTable: Sendable {
    /// FCM: the token, fid or topic starts with the word and a hyphen.
    private static let fcm: [FaultMarker] = [
        .init("bad", .fcm(.malformedToken), "400 INVALID_ARGUMENT: not a registration token"),
        .init("badfield", .fcm(.malformedTokenField), "400 INVALID_ARGUMENT, BadRequest on message.token"),
        .init("invalid", .fcm(.otherField), "400 INVALID_ARGUMENT, BadRequest on another field"),
        .init("unauthenticated", .fcm(.unauthenticated), "401 UNAUTHENTICATED, no FcmError"),
        .init("thirdparty", .fcm(.thirdPartyAuthError), "401 THIRD_PARTY_AUTH_ERROR"),
        .init("permission", .fcm(.permissionDenied), "403 PERMISSION_DENIED, no FcmError"),
        .init("mismatch", .fcm(.senderIDMismatch), "403 SENDER_ID_MISMATCH"),
        .init("unregistered", .fcm(.unregistered), "404 UNREGISTERED"),
        .init("quota", .fcm(.quotaExceeded), "429 RESOURCE_EXHAUSTED with Retry-After"),
        .init("devicequota", .fcm(.deviceQuotaExceeded), "429 QUOTA_EXCEEDED of the device, with Retry-After"),
        .init("topicquota", .fcm(.topicQuotaExceeded), "429 QUOTA_EXCEEDED of the topic, with Retry-After"),
        .init("unspecified", .fcm(.unspecified), "500 UNSPECIFIED_ERROR"),
        .init("internal", .fcm(.internalError), "500 INTERNAL"),
        .init("unavailable", .fcm(.unavailable), "503 UNAVAILABLE with Retry-After"),
        .init("new400", .fcm(.newReason(400, "FAILED_PRECONDITION")), "400 with an unknown error code"),
        .init("new401", .fcm(.newReason(401, "UNAUTHENTICATED")), "401 with an unknown error code"),
        .init("new403", .fcm(.newReason(403, "PERMISSION_DENIED")), "403 with an unknown error code"),
        .init("new404", .fcm(.newReason(404, "NOT_FOUND")), "404 with an unknown error code"),
        .init("new408", .fcm(.newReason(408, "ABORTED")), "408 with an unknown error code"),
        .init("new409", .fcm(.newReason(409, "ABORTED")), "409 with an unknown error code"),
        .init("new421", .fcm(.newReason(421, "ABORTED")), "421 with an unknown error code"),
        .init("new425", .fcm(.newReason(425, "ABORTED")), "425 with an unknown error code"),
        .init("new429", .fcm(.newReason(429, "RESOURCE_EXHAUSTED")), "429 with an unknown error code and Retry-After"),
        .init("new499", .fcm(.newReason(499, "CANCELLED")), "499 with an unknown error code"),
        .init("new500", .fcm(.newReason(500, "DATA_LOSS")), "500 with an unknown error code"),
    ]

    /// APNs: the token starts with `dead` and the two digits.
    private static let apns: [FaultMarker] = [
        .init("01", .badDeviceToken),
        .init("02", .deviceTokenNotForTopic),
        .init("03", .badCollapseID),
        .init("04", .badExpirationDate),
        .init("05", .badMessageID),
        .init("06", .badPriority),
        .init("07", .badTopic),
        .init("08", .missingTopic),
        .init("09", .missingDeviceToken),
        .init("0a", .duplicateHeaders),
        .init("0b", .invalidPushType),
        .init("0c", .payloadEmpty),
        .init("0d", .topicDisallowed),
        .init("0e", .idleTimeout),
        .init("31", .expiredProviderToken),
        .init("32", .invalidProviderToken),
        .init("33", .missingProviderToken),
        .init("34", .badCertificate),
        .init("35", .badCertificateEnvironment),
        .init("36", .unrelatedKeyIDInToken),
        .init("37", .badEnvironmentKeyInToken),
        .init("38", .badEnvironmentKeyIDInToken),
        .init("39", .forbidden),
        .init("44", .badPath),
        .init("45", .methodNotAllowed),
        .init("10", .apns(.init(.unregistered, isLongAgo: false)), "410 Unregistered, timestamp now"),
        .init("11", .apns(.init(.unregistered, isLongAgo: true)), "410 Unregistered, timestamp 2020-01-01"),
        .init("12", .apns(.init(.expiredToken, isLongAgo: false)), "410 ExpiredToken, timestamp now"),
        .init("13", .apns(.init(.expiredToken, isLongAgo: true)), "410 ExpiredToken, timestamp 2020-01-01"),
        .init("14", .payloadTooLarge),
        .init("29", .tooManyRequests),
        .init("2a", .tooManyProviderTokenUpdates),
        .init("50", .internalServerError),
        .init("53", .serviceUnavailable),
        .init("54", .shutdown),
        .init("90", .newBadRequest),
        .init("91", .newTimeout),
        .init("92", .newMisdirected),
        .init("93", .newForbidden),
        .init("94", .newTooEarly),
        .init("95", .newServerError),
        .init("99", .newTooMany),
        .init("9a", .apns(.init(.newGone)), "410 NewGone, timestamp now"),
        .init("e1", .slow, "accepted after a delay"),
        .init("e2", .silence, "no answer at all"),
        .init("e3", .cut, "connection cut after the request was read"),
        .init("f3", .sever, "connection reset (TCP) after the request was read"),
        .init("e4", .goAway, "GOAWAY that excludes the request's stream"),
        .init("e5", .refuse, "RST_STREAM REFUSED_STREAM"),
        .init("e6", .nonsense(.html), "502 with an HTML page"),
        .init("e7", .nonsense(.half), "503 with a truncated JSON object"),
        .init("e8", .nonsense(.empty), "500 without a body"),
        .init("e9", .nonsense(.huge), "200 with 1 MB"),
        .init("ea", .nonsense(.echo), "502 that echoes the request's headers"),
        .init("eb", .reset, "RST_STREAM INTERNAL_ERROR"),
        .init("ec", .nonsense(.page), "200 with an HTML page"),
        .init("ed", .nonsense(.blank), "200 without apns-id"),
        .init("ee", .nonsense(.torn), "200 with a truncated JSON object"),
        .init("ef", .nonsense(.lost), "404 with an HTML page"),
        .init("c2", flood: 200),
        .init("c0", flood: 400),
        .init("c3", flood: 403),
        .init("ca", flood: 410),
        .init("c9", flood: 429),
        .init("c5", flood: 503),
        .init("d2", part: 200),
        .init("d0", part: 400),
        .init("d3", part: 403),
        .init("da", part: 410),
        .init("d9", part: 429),
        .init("d5", part: 503),
    ]

    /// Web Push: the endpoint's name starts with the word and a hyphen.
    private static let webPush: [FaultMarker] = [
        .init("badrequest", .webPush(.badRequest("Chosen by the marker")), "400"),
        .init("unauthorized", .webPush(.unauthorized("Chosen by the marker")), "401, as for a bad VAPID token"),
        .init("forbidden", .webPush(.forbidden), "403, as for a wrong VAPID key"),
        .init("wrongkey", .webPush(.keyMismatch), "400 VapidPkHashMismatch, as from Apple"),
        .init("missing", .webPush(.notFound), "404, unknown subscription"),
        .init("throttled", .webPush(.throttled), "406 with Retry-After, as from Microsoft"),
        .init("timeout", .webPush(.timeout), "408"),
        .init("misdirected", .webPush(.misdirected), "421"),
        .init("early", .webPush(.tooEarly), "425"),
        .init("gone", .webPush(.gone), "410, the subscription has ended"),
        .init("toolarge", .webPush(.tooLarge), "413"),
        .init("limited", .webPush(.limited), "429 with Retry-After in seconds"),
        .init("limiteddate", .webPush(.limitedByDate), "429 with Retry-After as a date"),
        .init("crowded", .webPush(.crowded), "429 without Retry-After"),
        .init("conflict", .webPush(.conflict), "409"),
        .init("internal", .webPush(.internalError), "500"),
        .init("badgateway", .webPush(.badGateway), "502"),
        .init("unavailable", .webPush(.unavailable), "503 with Retry-After"),
        .init("moved", .webPush(.moved), "307 to another path"),
    ]

    /// Webhooks: the token starts with the word and a hyphen.
    private static let webhook: [FaultMarker] = [
        .init("badrequest", .webhook(.init(400, "chosen by the marker")), "400"),
        .init("unauthorized", .webhook(.init(401, "chosen by the marker")), "401, as for a bad signature"),
        .init("forbidden", .webhook(.init(403, "chosen by the marker")), "403"),
        .init("missing", .webhook(.init(404, "not found")), "404"),
        .init("timeout", .webhook(.init(408, "too slow")), "408"),
        .init("misdirected", .webhook(.init(421, "another server")), "421"),
        .init("early", .webhook(.init(425, "too early")), "425"),
        .init("gone", .webhook(.init(410, "gone")), "410"),
        .init("toolarge", .webhook(.init(413, "too large")), "413"),
        .init("limited", .webhook(.init(429, "slow down", isTemporary: true)), "429 with Retry-After"),
        .init("crowded", .webhook(.init(429, "slow down")), "429 without Retry-After"),
        .init("conflict", .webhook(.init(409, "conflict")), "409"),
        .init("internal", .webhook(.init(500, "internal error")), "500"),
        .init("badgateway", .webhook(.init(502, "bad gateway")), "502"),
        .init("unavailable", .webhook(.init(503, "come back later", isTemporary: true)), "503 with Retry-After"),
        .init("moved", .webhook(.init(307, "moved")), "307 to another path"),
    ]

    /// Faults that are the same for all providers but APNs.
    private static let anywhere: [FaultMarker] = [
        .init("slow", .slow, "accepted after a delay"),
        .init("silent", .silence, "no answer at all"),
        .init("cut", .cut, "connection cut after the request was read"),
        .init("sever", .sever, "connection reset (TCP) after the request was read"),
        .init("html", .nonsense(.html), "502 with an HTML page"),
        .init("half", .nonsense(.half), "503 with a truncated JSON object"),
        .init("empty", .nonsense(.empty), "500 without a body"),
        .init("huge", .nonsense(.huge), "200 with 1 MB"),
        .init("echo", .nonsense(.echo), "502 that echoes the request's headers"),
        .init("lost", .nonsense(.lost), "404 with an HTML page"),
        .init("page", .nonsense(.page), "200 with an HTML page"),
        .init("blank", .nonsense(.blank), "200 without a body"),
        .init("torn", .nonsense(.torn), "200 with a truncated JSON object"),
        .init("goaway", .goAway, "GOAWAY that excludes the request's stream"),
        .init("refused", .refuse, "RST_STREAM REFUSED_STREAM"),
        .init("reset", .reset, "RST_STREAM INTERNAL_ERROR"),
        .init("flood400", flood: 400),
        .init("flood401", flood: 401),
        .init("flood403", flood: 403),
        .init("flood404", flood: 404),
        .init("flood410", flood: 410),
        .init("flood429", flood: 429),
        .init("flood503", flood: 503),
        .init("part200", part: 200),
        .init("part400", part: 400),
        .init("part401", part: 401),
        .init("part403", part: 403),
        .init("part404", part: 404),
        .init("part410", part: 410),
        .init("part429", part: 429),
        .init("part503", part: 503),
    ]

    private static let fcmFaults = Dictionary(
        uniqueKeysWithValues: (Self.fcm + Self.anywhere).map { ($0.text, $0.fault) })
    private static let webPushFaults = Dictionary(
        uniqueKeysWithValues: (Self.webPush + Self.anywhere).map { ($0.text, $0.fault) })
    private static let webhookFaults = Dictionary(
        uniqueKeysWithValues: (Self.webhook + Self.anywhere).map { ($0.text, $0.fault) })
    private static let apnsFaults = Dictionary(uniqueKeysWithValues: Self.apns.map { ($0.text, $0.fault) })

    static var help: String {
        let words = (Self.fcm + Self.anywhere).map { "  \($0.text)-".padded(to: 20) + $0.effect }
        let names = (Self.webPush + Self.anywhere).map { "  \($0.text)-".padded(to: 20) + $0.effect }
        let hooks = (Self.webhook + Self.anywhere).map { "  \($0.text)-".padded(to: 20) + $0.effect }
        let codes = Self.apns.map { "  dead\($0.text)00".padded(to: 20) + $0.effect }
        return """
            Device tokens choose faults; only a valid request reaches its fault.

            FCM: a token, fid or topic with one of these prefixes always gets the answer
            next to it. With once- (unavailable-once-abc) or a count (quota-3x-abc) after
            the prefix, only the first attempts of that token do.
            \(words.joined(separator: "\n"))

            Web Push: the same for the subscription's name, the second part of the endpoint.
            \(names.joined(separator: "\n"))

            Webhooks: the same for the token.
            \(hooks.joined(separator: "\n"))

            APNs: a token that starts with dead, two digits for the fault and two for the
            attempts that get it: 00 all, 01 the first, 0a the first ten. The rest of the
            token, to 64 digits or more, is free.
            \(codes.joined(separator: "\n"))
            """
    }

    private let attempts: AttemptLedger

    init(attempts: AttemptLedger) {
        self.attempts = attempts
    }

    /// Counts an attempt for an FCM target and returns its fault, if any.
    func fault(forFCM target: String) -> Fault? { self.fault(target, Self.fcmFaults) }

    /// Counts an attempt for a subscription and returns its fault, if any.
    func fault(forWebPush name: String) -> Fault? { self.fault(name, Self.webPushFaults) }

    /// Counts an attempt for a webhook's token and returns its fault, if any.
    func fault(forWebhook token: String) -> Fault? { self.fault(token, Self.webhookFaults) }

    private func fault(_ target: String, _ faults: [String: Fault]) -> Fault? {
        guard let end = target.utf8.prefix(20).firstIndex(of: UInt8(ascii: "-")),
            let fault = faults[String(target[..<end])]
        else { return nil }
        let attempt = self.attempts.count(target)
        let rest = target[target.index(after: end)...]
        guard let word = rest.firstIndex(of: "-").map({ rest[..<$0] }) else { return fault }
        let limit = word == "once" ? 1 : word.hasSuffix("x") ? Int(word.dropLast()) : nil
        return attempt <= limit ?? .max ? fault : nil
    }

    /// Counts an attempt for an APNs device and returns its fault, if any.
    func fault(forAPNS token: String) -> Fault? {
        let start = token.utf8.prefix(8)
        guard start.count == 8, start.first == UInt8(ascii: "d") || start.first == UInt8(ascii: "D") else { return nil }
        let marker = token.prefix(8).lowercased()
        guard marker.hasPrefix("dead"), let fault = Self.apnsFaults[String(marker.dropFirst(4).prefix(2))],
            let limit = Int(marker.suffix(2), radix: 16)
        else { return nil }
        let attempt = self.attempts.count(token)
        return limit == 0 || attempt <= limit ? fault : nil
    }
}

extension String {
    fileprivate func padded(to width: Int) -> String {
        self + String(repeating: " ", count: max(1, width - self.count))
    }
}

/// A row of the fault table.
struct FaultMarker: Sendable {
    /// The marker in the token: a word for FCM, two hex digits for APNs.
    let text: String
    let fault: Fault
    let effect: String

    init(_ text: String, _ fault: Fault, _ effect: String) {
        self.text = text
        self.fault = fault
        self.effect = effect
    }

    init(_ text: String, part status: Int) {
        self.init(text, .part(status: status), "\(status), breaks off")
    }

    init(_ text: String, flood status: Int) {
        self.init(text, .flood(status: status), "\(status) with 1 MB")
    }

    init(_ text: String, _ reason: APNSReason) {
        self.init(text, .apns(APNSRefusal(reason)), "\(reason.status) \(reason.rawValue)")
    }
}

/// The behaviour that a marked device token chooses for a valid request.
enum Fault: Sendable {
    enum Nonsense: String, Sendable {
        /// 502 with an HTML page, as from a proxy.
        case html
        /// 503 with a truncated JSON object.
        case half
        /// 500 without a body.
        case empty
        /// 200 with 1 MB.
        case huge
        /// 502 that echoes the request's headers, including the credential.
        case echo
        /// 404 with an HTML page, as from a proxy that does not know the path.
        case lost
        /// 200 with an HTML page, as from a proxy that asks for a login.
        case page
        /// 200 without a body.
        case blank
        /// 200 with a truncated JSON object.
        case torn
    }

    case fcm(FCMRefusal)
    case apns(APNSRefusal)
    case webPush(WebPushRefusal)
    case webhook(WebhookRefusal)
    /// Accepted, but answered late.
    case slow
    case silence
    case cut
    /// Like `cut`, but with a TCP reset.
    case sever
    case goAway
    /// A response that no provider should send.
    case nonsense(Nonsense)
    /// A response that breaks off after its beginning.
    case part(status: Int)
    /// A response with 1 MB.
    case flood(status: Int)
    case refuse
    case reset
}

extension Fault {
    /// Returns the answer to a valid request; nil if the fault is a provider's own error.
    ///
    /// - Parameter accepted: makes the answer without a fault.
    func answer(
        to request: SandboxRequest, slowPause: SlowPause, accepted: () -> SandboxResponse
    ) -> SandboxAnswer? {
        switch self {
        case .fcm, .apns, .webPush, .webhook: nil
        case .slow: .respondLater(accepted(), after: slowPause)
        case .silence: .silence
        case .cut: .cut
        case .sever: .sever
        case .goAway: .goAway
        case .nonsense(let kind): .respond(SandboxResponse(kind, to: request))
        case .part(let status): .respondInPart(SandboxResponse(status, unfinished: #"{"reason":"Unregis"#))
        case .flood(let status):
            .respond(SandboxResponse(status, unfinished: String(repeating: "x", count: 1_000_000)))
        case .refuse: .refuse
        case .reset: .reset
        }
    }
}

/// Counts the attempts for each token with a fault.
///
/// Keeps at least the last 50,000 tokens and at most 100,000: the older half is dropped when the
/// younger is full.
final class AttemptLedger: Sendable {
    private struct Halves {
        var younger: [String: Int] = [:]
        var older: [String: Int] = [:]
    }

    private static let limit = 50_000

    private let halves = Mutex(Halves())

    /// The attempts by token.
    var counts: [String: Int] {
        self.halves.withLock { $0.older.merging($0.younger) { _, younger in younger } }
    }

    /// Counts an attempt and returns its number, from 1.
    func count(_ token: String) -> Int {
        self.halves.withLock { halves in
            let count = (halves.younger[token] ?? halves.older[token] ?? 0) + 1
            if halves.younger.count >= Self.limit, halves.younger[token] == nil {
                halves.older = halves.younger
                halves.younger = [:]
            }
            halves.younger[token] = count
            return count
        }
    }

    func reset() {
        self.halves.withLock { $0 = Halves() }
    }
}
