// Carillon · JobEntry.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The fields of a stream entry, as a test writes them.
struct JobEntry {
    private var fields: [(name: String, value: ArraySlice<UInt8>)]

    /// The least that is a job, with some fields replaced or added; nil leaves a field out.
    init(_ changes: KeyValuePairs<String, String?> = [:]) {
        self.fields = []
        for (name, value) in changes {
            if let value { self.append(name, Array(value.utf8)) }
        }
        let named = Set(changes.map(\.key))
        if named.isDisjoint(with: ["user", "users", "topic", "all"]) { self.append("user", Array("u1".utf8)) }
        if named.isDisjoint(with: ["type", "event"]) { self.append("type", Array("greeting".utf8)) }
    }

    /// One field in bytes, beside the least that is a job.
    init(_ name: String, bytes: [UInt8]) {
        switch name {
        case "user", "users": self.init(["user": nil])
        case "type": self.init(["type": nil])
        default: self.init()
        }
        self.append(name, bytes)
    }

    mutating func append(_ name: String, _ value: [UInt8]) {
        self.fields.append((name, value[...]))
    }

    func decode() throws(JobFaults) -> Job {
        try JobDecoder.decode(self.fields)
    }

    /// What is wrong with it, a line a fault.
    var faults: [String] {
        do throws(JobFaults) {
            _ = try self.decode()
            return []
        } catch {
            return error.faults.map(\.description)
        }
    }

    /// The content of the notification that it asks for.
    func content() throws -> JobContent? {
        guard case .notification(let content) = try self.decode().payload else { return nil }
        return content
    }
}
