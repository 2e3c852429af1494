// Carillon · CompatibilityDocument.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// The description of the paths of other systems, OpenAPI 3.1, put together from the files in `OpenAPI/`: one a system.
package enum CompatibilityDocument {
    private static let parts: [[UInt8]] = [
        PackageResources.socketio_hybrid_json, PackageResources.allowance_json, PackageResources.breaking_news_json,
        PackageResources.task_reminders_json, PackageResources.edge_scheduler_json, PackageResources.description_json,
    ]

    /// Puts the parts together.
    ///
    /// - Throws: ``JSONFault`` if one of them is no JSON.
    package static func make() throws(JSONFault) -> JSONValue {
        try OpenAPIDocument.make(base: PackageResources.compatibility_json, parts: self.parts)
    }
}
