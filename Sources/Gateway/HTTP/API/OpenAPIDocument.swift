// Carillon · OpenAPIDocument.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The description of the API, OpenAPI 3.1, put together from the files in `OpenAPI/`.
///
/// `base.json` holds what all share; each other file holds one resource: its `paths`, and the `schemas` that they name. A
/// test compares the whole with the routes.
package enum OpenAPIDocument {
    private static let parts: [[UInt8]] = [
        PackageResources.inbox_json, PackageResources.devices_json, PackageResources.preferences_json,
        PackageResources.topics_json, PackageResources.jobs_json, PackageResources.users_json,
        PackageResources.tokens_json, PackageResources.webhooks_json, PackageResources.deadletters_json,
        PackageResources.admin_json, PackageResources.operations_json,
        PackageResources.decisions_json, PackageResources.providers_json, PackageResources.schedules_json,
        PackageResources.statistics_json,
    ]

    /// Puts the API's own together.
    ///
    /// - Throws: ``JSONFault`` if a part is no JSON.
    package static func make() throws(JSONFault) -> JSONValue {
        try self.make(base: PackageResources.base_json, parts: self.parts)
    }

    /// Puts a document together.
    ///
    /// - Parameters:
    ///   - base: the document with what all parts share, and without `paths`.
    ///   - parts: each with its `paths`, and with members of the base's `components`, such as `schemas`.
    /// - Throws: ``JSONFault`` if one of them is no JSON.
    package static func make(base: [UInt8], parts: [[UInt8]]) throws(JSONFault) -> JSONValue {
        var added: [String: [JSONMember]] = [:]
        for part in parts {
            for member in try JSONParser.parse(part).object ?? [] {
                added[member.key, default: []] += member.value.object ?? []
            }
        }
        var members: [JSONMember] = []
        for member in try JSONParser.parse(base).object ?? [] {
            guard member.key == "components" else {
                members.append(member)
                continue
            }
            members.append(JSONMember("paths", .object(added["paths"] ?? [])))
            let components = (member.value.object ?? []).map { component in
                JSONMember(component.key, .object((component.value.object ?? []) + (added[component.key] ?? [])))
            }
            members.append(JSONMember("components", .object(components)))
        }
        return .object(members)
    }
}
