// Carillon · UserRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import NIOCore
import Storage

/// Users as a whole, for services: `/v1/users`.
struct UserRoutes {
    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.put("users/:id", use: self.put)
        group.get("users/:id", use: self.export)
        group.delete("users/:id", use: self.erase)
    }

    private func user(_ context: APIContext) throws -> String {
        try context.requireService()
        return try context.pathText("id", limit: JobLimits.user)
    }

    private func put(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try self.user(context)
        let value = try await JSONBody.read(request, isRequired: true)
        let record: UserRecord
        do throws(JobFaults) {
            record = try self.services.userFields.record(value, user: user)
        } catch {
            throw Problem(.unprocessableContent, "some fields are at fault", faults: error.faults)
        }
        let registrations = try await self.services.users.put([record]).first ?? []
        await self.services.tell(registrations)
        return Response.object { writer in
            writer.member("user_id", user)
            writer.key("devices")
            writer.beginArray()
            for registration in registrations { DeviceRoutes.write(registration.device, to: &writer) }
            writer.endArray()
        }
    }

    /// Everything that is stored about a user, written page by page, so that its size costs no memory.
    private func export(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try self.user(context)
        let exports = self.services.exports
        let singles = try await exports.singles(user: user)
        guard !singles.isEmpty else { throw Problem.notFound }
        let body = ResponseBody { output in
            var writer = JSONWriter(capacity: 16 * 1024)
            writer.beginObject()
            writer.member("user_id", user)
            for single in UserExportStore.Single.allCases {
                writer.key(escaping: single.rawValue)
                if let row = singles[single] { writer.raw(row) } else { writer.null() }
            }
            for section in UserExportStore.Section.allCases {
                writer.key(escaping: section.rawValue)
                writer.beginArray()
                var cursor: String?
                repeat {
                    let page = try await exports.page(section, user: user, after: cursor)
                    for row in page.rows { writer.raw(row) }
                    cursor = page.cursor
                    try await output.write(ByteBuffer(bytes: writer.take()))
                } while cursor != nil
                writer.endArray()
            }
            writer.endObject()
            try await output.write(ByteBuffer(bytes: writer.take()))
            try await output.finish(nil)
        }
        return Response(
            status: .ok,
            headers: [.contentType: "application/json", .cacheControl: "no-store"],
            body: body
        )
    }

    private func erase(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try self.user(context)
        let report = try await self.services.erasure.erase(user: user, caps: self.services.catalog.capNames)
        self.services.inboxPages.forget(user)
        return Response.object { writer in
            writer.member("user_id", user)
            for (name, counts) in [("postgres", report.postgres), ("redis", report.redis)] {
                writer.key(escaping: name)
                writer.beginObject()
                for (name, count) in counts {
                    writer.key(escaping: name)
                    writer.integer(count)
                }
                writer.endObject()
            }
        }
    }
}
