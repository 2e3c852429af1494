// Carillon · BroadcastRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Controls broadcasts: `/v1/jobs/{id}/pause` and the like for services, `/v1/admin/broadcasts` for
/// admins.
struct BroadcastRoutes {
    let jobs: JobServices

    func add(to routes: Routes) {
        let jobs = routes.group("jobs/:id", tag: "jobs")
        jobs.post("pause", Self.pause) { try await self.apply(.pause, $0, $1) }
        jobs.post("resume", Self.resume) { try await self.apply(.resume, $0, $1) }
        jobs.post("confirm", Self.confirm) { try await self.apply(.confirm, $0, $1) }
        routes.group(tag: "admin").get("admin/broadcasts", Self.list, self.list)
    }

    private static let pause = transition("pauseJob", "Pauses the expansion of a broadcast.")
    private static let resume = transition("resumeJob", "Resumes a paused or failed broadcast.")
    private static let confirm = transition("confirmJob", "Confirms a broadcast with a large audience.")

    private static func transition(_ id: String, _ summary: String) -> Operation {
        Operation(
            id, summary, scope: .service, path: JobControlRoutes.id, query: JobControlRoutes.org,
            answers: [.ok("The status; the call is idempotent.", JobControl.Report.shape.schema), 404, 409])
    }

    private func apply(_ order: JobControl.Order, _ request: Request, _ context: APIContext) async throws -> Response {
        let name = try await JobControlRoutes(jobs: self.jobs).name(
            context, FieldReader(query: request, of: Self.pause))
        guard let (report, isApplied) = try await self.jobs.control.order(order, name) else {
            throw Problem(.notFound, "there is no such broadcast, or no dispatcher has stored it yet")
        }
        guard isApplied else {
            throw Problem(.conflict, "the broadcast is \(report.progress?.broadcast.state.rawValue ?? "gone")")
        }
        return .json((report, self.jobs.base.catalog), as: JobControl.Report.shape)
    }

    private static let list = Operation(
        "listBroadcasts",
        "Lists broadcasts, newest first.",
        scope: .admin,
        query: [
            "limit?": .integer(1...100, default: 20),
            "cursor?": .uuid("`next_cursor` of the previous page."),
            "state?": .cases(of: Broadcast.State.self),
        ],
        answers: [.ok("A page.", page.schema)])

    private static let page = Shape.page("broadcasts", of: BroadcastReport.shape)

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.list)
        let limit = query.limit()
        let before = query.cursor()
        let state = query.choice("state", of: Broadcast.State.self)
        try query.finish()
        let found = try await self.jobs.broadcasts.list(before: before, state: state, limit: limit + 1)
        let page = Page(found, limit: limit) { $0.broadcast.id }
        let catalog = self.jobs.base.catalog
        return .json(page.map { BroadcastReport($0, catalog) }, as: Self.page)
    }
}
