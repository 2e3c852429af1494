// Carillon · CatalogRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Logging
import Storage

/// The catalog in force, for admins: `/v1/admin/catalog`.
struct CatalogRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.get("admin/catalog", use: self.show)
        group.post("admin/catalog/reload", use: self.reload)
    }

    private func show(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        return Response.object { CatalogJSON.write(self.services.catalogs, to: &$0) }
    }

    /// Reads it here, and tells all others if it is good.
    private func reload(_ request: Request, _ context: APIContext) async throws -> Response {
        try context.requireAdmin()
        let outcome: CatalogRegister.Outcome
        do throws(CatalogFaults) {
            outcome = try self.services.catalogs.reload()
        } catch {
            for fault in error.faults {
                context.logger.error("catalog rejected; the previous one stays in use", metadata: ["fault": "\(fault)"])
            }
            let faults = error.faults.map { JobFault("catalog", $0.description) }
            throw Problem(.unprocessableContent, "the catalog is faulty; the previous one stays in use", faults: faults)
        }
        let entry = self.services.catalogs.entry
        if outcome == .replaced {
            context.logger.notice("catalog reloaded", metadata: ["catalog.digest": "\(entry.catalog.digest)"])
        }
        let told = try await self.services.catalogAnnouncer.announce(digest: entry.catalog.digest)
        return Response.object { writer in
            writer.member("outcome", outcome.rawValue)
            writer.member("digest", entry.catalog.digest)
            writer.member("loaded_at", entry.loadedAt.rfc3339)
            writer.member("types", entry.catalog.all.count)
            writer.member("told", told)
        }
    }
}
