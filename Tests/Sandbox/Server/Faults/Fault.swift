// Carillon · Fault.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// What a marked device token makes the sandbox do, after the request was found valid.
enum Fault: Sendable {
    enum Nonsense: String, Sendable {
        /// 502 with a page of HTML, as a proxy in between gives.
        case html
        /// 503 with the beginning of a JSON object.
        case half
        /// 500 without a body.
        case empty
        /// 200 with 1 MB.
        case huge
        /// 502 with the request's own header in it, credential and all.
        case echo
        /// 404 with a page of HTML, as a proxy that does not know the path gives.
        case lost
        /// 200 with a page of HTML, as a proxy that asks for a login gives.
        case page
        /// 200 without a body.
        case blank
        /// 200 with the beginning of a JSON object.
        case torn
    }

    case fcm(FCMRefusal)
    case apns(APNSRefusal)
    case webPush(WebPushRefusal)
    case webhook(WebhookRefusal)
    /// The good answer, late.
    case slow
    case silence
    case cut
    /// As `cut`, by TCP's reset.
    case sever
    case goAway
    /// An answer that no provider should give.
    case nonsense(Nonsense)
    /// An answer of which the beginning comes, and then the stream breaks.
    case part(status: Int)
    /// An answer with 1 MB.
    case flood(status: Int)
    case refuse
    case reset
}

extension Fault {
    /// What it makes of a valid request whose good answer is `accepted`; nil for a provider's own words.
    func answer(
        to request: SandboxRequest, slowDelay: Duration, accepted: () -> SandboxResponse
    ) -> SandboxAnswer? {
        switch self {
        case .fcm, .apns, .webPush, .webhook: nil
        case .slow: .respondLater(accepted(), after: TimeAmount(slowDelay))
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
