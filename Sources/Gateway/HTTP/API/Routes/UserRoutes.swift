// Carillon · UserRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import NIOCore
import Operations
import Storage

/// Import, export and erasure of users, for services: `/v1/users`.
struct UserRoutes {
    let users: UserServices
    let pages: InboxPageCache

    func add(to routes: Routes) {
        routes.put("users/:id", Self.put, self.put)
        routes.get("users/:id", Self.export, self.export)
        routes.delete("users/:id", Self.erase, self.erase)
    }

    /// The user in the path.
    static let user: Fields = ["id": .text(JobLimits.user)("A user, percent-encoded.")]

    private func user(_ context: APIContext) throws -> String {
        try context.pathText("id", limit: JobLimits.user)
    }

    private static let put = Operation(
        "putUser",
        "Sets settings, preferences, devices and topics at once; omitted parts stay.",
        scope: .service,
        path: user,
        body: .userRecord,
        answers: [.ok("The devices of the request.", registered.schema)])

    private static let registered: Shape<(user: String, devices: [Device])> = [
        "user_id": .value(.text(JobLimits.user)) { $0.user },
        "devices": .list(of: Device.shape, max: 100) { $0.devices },
    ]

    private func put(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try self.user(context)
        let value = try FieldReader(try await FieldReader.body(request)).value
        let record: UserRecord
        do throws(JobFaults) {
            record = try self.users.fields.record(value, user: user)
        } catch {
            throw Problem(faults: error.faults)
        }
        let registrations = try await self.users.store.put([record]).first ?? []
        await self.users.publish(registrations)
        return .json((user, registrations.map(\.device)), as: Self.registered)
    }

    private static let export = Operation(
        "exportUser",
        "Exports everything stored about a user, by table, as a stream.",
        scope: .service,
        path: user,
        answers: [.ok("The rows.", .userExport), 404])

    /// Exports everything that is stored about a user, page by page to limit memory.
    private func export(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try self.user(context)
        let exports = self.users.base.database.exports
        let singles = try await exports.singles(user: user)
        // An erasure leaves only a revocation. Dead letters and schedules may name a user without
        // other rows.
        var isKnown = singles.keys.contains { $0 != .revocation }
        if !isKnown { isKnown = try await exports.hasRows(user: user) }
        guard isKnown else { throw Problem.noSuch("user") }
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

    private static let erase = Operation(
        "eraseUser",
        "Erases a user: revokes tokens, closes sockets and deletes all data.",
        scope: .service,
        path: user,
        answers: [.ok("The number of erased items.", erasure.schema)])

    private static let erasure = Shape<(user: String, report: ErasureService.Report)>(
        "Erasure",
        [
            "user_id": .value(.text(JobLimits.user)) { $0.user },
            "postgres": .value(.map(of: .count), "Rows by table.") { CountsByName($0.report.postgres) },
            "redis": .value(
                .map(of: .count), "Redis items by kind: presence, usage (of caps and rates), unconfirmed, retries."
            ) { CountsByName($0.report.redis) },
        ])

    private func erase(_ request: Request, _ context: APIContext) async throws -> Response {
        let user = try self.user(context)
        let report = try await self.users.erasure.erase(user: user, caps: self.users.base.catalog.capNames)
        self.pages.evict(user)
        return .json((user, report), as: Self.erasure)
    }
}

extension Schema {
    static let userExport = Schema(
        "UserExport",
        Fields([("user_id", Schema.text(JobLimits.user))])
            + Fields(UserExportStore.Single.allCases.map { ($0.rawValue, Schema.anyObject.orNull) })
            + Fields(UserExportStore.Section.allCases.map { ($0.rawValue, Schema.stream(of: .anyObject)) }))
}
