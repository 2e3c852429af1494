// Carillon · Fault.swift
// SPDX-License-Identifier: Apache-2.0

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
    }

    case fcm(FCMRefusal)
    case apns(APNSRefusal)
    case webPush(WebPushRefusal)
    /// The good answer, late.
    case slow
    case silence
    case cut
    case goAway
    /// An answer that no provider should give.
    case nonsense(Nonsense)
    case refuse
}
