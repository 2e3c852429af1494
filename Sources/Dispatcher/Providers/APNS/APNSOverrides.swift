// Carillon · APNSOverrides.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What a job asks of APNs beyond the common fields, `platform.apns`: short names, whole members of `aps`, and headers.
struct APNSOverrides {
    /// One after the other, as a null in the later takes away what the earlier or the payload has.
    private var changes: [JSONValue] = []
    /// Whether the push wakes the app and shows nothing.
    private(set) var isBackground = false
    private(set) var priority: String?

    init(_ value: JSONValue?) {
        guard let members = value?.object else { return }
        var aps: [JSONMember] = []
        var alert: [JSONMember] = []
        for member in members {
            let name = member.key.replacing("_", with: "-")
            if PlatformFields.aps.contains(member.key) {
                aps.append(JSONMember(name, member.value))
            } else if PlatformFields.apsSwitches.contains(member.key) {
                aps.append(JSONMember(name, member.value.isOn == true ? .number("1") : .null))
            } else if PlatformFields.apsAlert.contains(member.key) {
                alert.append(JSONMember(name, member.value))
            }
        }
        if !alert.isEmpty { aps.append(JSONMember("alert", .object(alert))) }
        if !aps.isEmpty { self.changes.append(.object(aps)) }
        if let own = value?["aps"], own.object != nil { self.changes.append(own) }
        self.isBackground = value?["push_type"]?.string == "background"
        let priority = value?["priority"]?.integer ?? 0
        if PlatformFields.apnsPriorities.contains(priority) { self.priority = String(priority) }
    }

    func applied(to payload: [UInt8]) -> [UInt8] {
        guard !self.changes.isEmpty, !self.isBackground, let whole = try? JSONParser.parse(payload) else {
            return payload
        }
        return JSONWriter.bytes(of: self.changes.reduce(whole) { $0.merging(.object([JSONMember("aps", $1)])) })
    }
}
