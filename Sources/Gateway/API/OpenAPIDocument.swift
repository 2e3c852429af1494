// Carillon · OpenAPIDocument.swift
// SPDX-License-Identifier: Apache-2.0

package import JSON

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

    /// Puts the parts together.
    ///
    /// - Throws: ``JSONFault`` if one of them is no JSON.
    package static func make() throws(JSONFault) -> JSONValue {
        var paths: [JSONMember] = []
        var schemas: [JSONMember] = []
        for part in Self.parts {
            let value = try JSONParser.parse(part)
            paths += value["paths"]?.object ?? []
            schemas += value["schemas"]?.object ?? []
        }
        var members: [JSONMember] = []
        for member in try JSONParser.parse(PackageResources.base_json).object ?? [] {
            guard member.key == "components" else {
                members.append(member)
                continue
            }
            members.append(JSONMember("paths", .object(paths)))
            let components = (member.value.object ?? []).map { component in
                component.key == "schemas"
                    ? JSONMember("schemas", .object((component.value.object ?? []) + schemas)) : component
            }
            members.append(JSONMember("components", .object(components)))
        }
        return .object(members)
    }
}
