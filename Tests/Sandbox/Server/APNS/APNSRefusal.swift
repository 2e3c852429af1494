// Carillon · APNSRefusal.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// An error response of APNs.
struct APNSRefusal: Error {
    let reason: APNSReason
    /// For 410: whether the token became invalid on 2020-01-01 instead of now.
    let isLongAgo: Bool

    init(_ reason: APNSReason, isLongAgo: Bool = false) {
        self.reason = reason
        self.isLongAgo = isLongAgo
    }

    /// The JSON body: `reason`, and for 410 `timestamp` in milliseconds.
    func body(at now: Date) -> String {
        guard self.reason.status == 410 else { return #"{"reason":"\#(self.reason.rawValue)"}"# }
        let timestamp = self.isLongAgo ? 1_577_836_800_000 : Int(now.timeIntervalSince1970 * 1000)
        return #"{"reason":"\#(self.reason.rawValue)","timestamp":\#(timestamp)}"#
    }
}

/// Apple's reasons, spelled as on the wire.
enum APNSReason: String, Sendable {
    case badCollapseID = "BadCollapseId"
    case badDeviceToken = "BadDeviceToken"
    case badExpirationDate = "BadExpirationDate"
    case badMessageID = "BadMessageId"
    case badPriority = "BadPriority"
    case badTopic = "BadTopic"
    case deviceTokenNotForTopic = "DeviceTokenNotForTopic"
    case duplicateHeaders = "DuplicateHeaders"
    case idleTimeout = "IdleTimeout"
    case invalidPushType = "InvalidPushType"
    case missingDeviceToken = "MissingDeviceToken"
    case missingTopic = "MissingTopic"
    case payloadEmpty = "PayloadEmpty"
    case topicDisallowed = "TopicDisallowed"
    case badCertificate = "BadCertificate"
    case badCertificateEnvironment = "BadCertificateEnvironment"
    case badEnvironmentKeyIDInToken = "BadEnvironmentKeyIdInToken"
    /// Apple really sends this in place of the documented one above.
    case badEnvironmentKeyInToken = "BadEnvironmentKeyInToken"
    case expiredProviderToken = "ExpiredProviderToken"
    case forbidden = "Forbidden"
    case invalidProviderToken = "InvalidProviderToken"
    case missingProviderToken = "MissingProviderToken"
    case unrelatedKeyIDInToken = "UnrelatedKeyIdInToken"
    case badPath = "BadPath"
    case methodNotAllowed = "MethodNotAllowed"
    case expiredToken = "ExpiredToken"
    case unregistered = "Unregistered"
    case payloadTooLarge = "PayloadTooLarge"
    case tooManyProviderTokenUpdates = "TooManyProviderTokenUpdates"
    case tooManyRequests = "TooManyRequests"
    case internalServerError = "InternalServerError"
    case serviceUnavailable = "ServiceUnavailable"
    case shutdown = "Shutdown"
    // Reasons that Apple does not document.
    case newBadRequest = "NewBadRequest"
    case newForbidden = "NewForbidden"
    case newGone = "NewGone"
    case newMisdirected = "NewMisdirected"
    case newTimeout = "NewTimeout"
    case newTooEarly = "NewTooEarly"
    case newTooMany = "NewTooMany"
    case newServerError = "NewServerError"

    /// The HTTP status of the reason.
    var status: Int {
        switch self {
        case .badCollapseID, .badDeviceToken, .badExpirationDate, .badMessageID, .badPriority, .badTopic,
            .deviceTokenNotForTopic, .duplicateHeaders, .idleTimeout, .invalidPushType, .missingDeviceToken,
            .missingTopic, .payloadEmpty, .topicDisallowed, .newBadRequest:
            400
        case .badCertificate, .badCertificateEnvironment, .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken,
            .expiredProviderToken, .forbidden, .invalidProviderToken, .missingProviderToken, .unrelatedKeyIDInToken,
            .newForbidden:
            403
        case .badPath: 404
        case .methodNotAllowed: 405
        case .newTimeout: 408
        case .expiredToken, .unregistered, .newGone: 410
        case .payloadTooLarge: 413
        case .newMisdirected: 421
        case .newTooEarly: 425
        case .tooManyProviderTokenUpdates, .tooManyRequests, .newTooMany: 429
        case .internalServerError, .newServerError: 500
        case .serviceUnavailable, .shutdown: 503
        }
    }
}
