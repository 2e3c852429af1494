// Carillon · Fault.swift
// SPDX-License-Identifier: Apache-2.0

/// What a marked device token makes the sandbox do, after the request was found valid.
enum Fault: Sendable {
    case fcm(FCMRefusal)
    case apns(APNSRefusal)
    case webPush(WebPushRefusal)
    /// The good answer, late.
    case slow
    case silence
    case cut
    case goAway
    case refuse
}
