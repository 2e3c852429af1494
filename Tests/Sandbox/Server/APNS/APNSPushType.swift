// Carillon · APNSPushType.swift
// SPDX-License-Identifier: Apache-2.0

/// The values of `apns-push-type`.
enum APNSPushType: String {
    case alert, background, location, voip, complication, fileprovider, mdm, liveactivity, pushtotalk, widgets, controls

    /// What the topic must end with; `nil` where it is the plain bundle id.
    var topicSuffix: String? {
        switch self {
        case .alert, .background, .mdm, .controls: nil
        case .location: ".location-query"
        case .voip: ".voip"
        case .complication: ".complication"
        case .fileprovider: ".pushkit.fileprovider"
        case .liveactivity: ".push-type.liveactivity"
        case .pushtotalk: ".voip-ptt"
        case .widgets: ".push-type.widgets"
        }
    }

    /// The most bytes of payload.
    var payloadLimit: Int { self == .voip ? 5120 : 4096 }
}
