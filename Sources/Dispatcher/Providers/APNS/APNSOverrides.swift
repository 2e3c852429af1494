// Carillon · APNSOverrides.swift
// SPDX-License-Identifier: Apache-2.0

import JSON

/// What a job asks of APNs beyond the common fields, `platform.apns`: short names, whole members of `aps`, and headers.
struct APNSOverrides {
    /// Short names and the members of `aps` that they stand for.
    private static let members = [
        "thread_id": "thread-id", "interruption_level": "interruption-level", "relevance_score": "relevance-score",
        "category": "category", "target_content_id": "target-content-id", "filter_criteria": "filter-criteria",
        "sound": "sound",
    ]
    /// Switches, which Apple writes as 1.
    private static let switches = ["mutable_content": "mutable-content", "content_available": "content-available"]
    private static let alert = [
        "subtitle": "subtitle", "launch_image": "launch-image", "title_loc_key": "title-loc-key",
        "title_loc_args": "title-loc-args", "subtitle_loc_key": "subtitle-loc-key",
        "subtitle_loc_args": "subtitle-loc-args", "loc_key": "loc-key", "loc_args": "loc-args",
    ]

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
            if let name = Self.members[member.key] {
                aps.append(JSONMember(name, member.value))
            } else if let name = Self.switches[member.key] {
                aps.append(JSONMember(name, member.value.bool == true ? .number("1") : .null))
            } else if let name = Self.alert[member.key] {
                alert.append(JSONMember(name, member.value))
            }
        }
        if !alert.isEmpty { aps.append(JSONMember("alert", .object(alert))) }
        if !aps.isEmpty { self.changes.append(.object(aps)) }
        if let own = value?["aps"], own.object != nil { self.changes.append(own) }
        self.isBackground = value?["push_type"]?.string == "background"
        let priority = value?["priority"]?.integer ?? 0
        if [1, 5, 10].contains(priority) { self.priority = String(priority) }
    }

    func applied(to payload: [UInt8]) -> [UInt8] {
        guard !self.changes.isEmpty, !self.isBackground, let whole = try? JSONParser.parse(payload) else {
            return payload
        }
        return JSONWriter.bytes(of: self.changes.reduce(whole) { $0.merging(.object([JSONMember("aps", $1)])) })
    }
}
