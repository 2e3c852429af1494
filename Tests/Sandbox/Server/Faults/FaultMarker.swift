// Carillon · FaultMarker.swift
// SPDX-License-Identifier: Apache-2.0

/// One row of the fault table.
struct FaultMarker: Sendable {
    /// How the token shows it: a word for FCM, two hex digits for APNs.
    let text: String
    let fault: Fault
    let effect: String

    init(_ text: String, _ fault: Fault, _ effect: String) {
        self.text = text
        self.fault = fault
        self.effect = effect
    }

    init(_ text: String, part status: Int) {
        self.init(text, .part(status: status), "\(status) that breaks off")
    }

    init(_ text: String, flood status: Int) {
        self.init(text, .flood(status: status), "\(status) with 1 MB")
    }

    init(_ text: String, _ reason: APNSReason) {
        self.init(text, .apns(APNSRefusal(reason)), "\(reason.status) \(reason.rawValue)")
    }
}
