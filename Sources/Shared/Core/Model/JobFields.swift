// Carillon · JobFields.swift
// SPDX-License-Identifier: Apache-2.0

/// A job's JSON object as the flat fields of a stream entry.
package enum JobFields {
    /// Strings as they are, other values as JSON text; nulls are left out.
    package static func flat(_ members: [JSONMember]) -> [(name: String, value: [UInt8])] {
        var fields: [(name: String, value: [UInt8])] = []
        fields.reserveCapacity(members.count + 1)
        for member in members {
            switch member.value {
            case .null: continue
            case .string(let text): fields.append((member.key, Array(text.utf8)))
            default: fields.append((member.key, JSONWriter.bytes(of: member.value)))
            }
        }
        return fields
    }
}
