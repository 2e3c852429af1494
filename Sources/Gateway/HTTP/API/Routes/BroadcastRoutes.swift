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
            answers: [.ok("The status; the call is idempotent.", .jobReport), 404, 409])
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
        return Response.object { JobShape.write(report, self.jobs.base.catalog, to: &$0) }
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
        answers: [
            .ok("A page.", .object(["broadcasts": .list(of: .broadcast, max: 100), "next_cursor": .string.orNull]))
        ])

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.list)
        let limit = query.limit()
        let before = query.cursor()
        let state = query.choice("state", of: Broadcast.State.self)
        try query.finish()
        let found = try await self.jobs.broadcasts.list(before: before, state: state, limit: limit + 1)
        let catalog = self.jobs.base.catalog
        return Response.object { writer in
            writer.array("broadcasts", found.prefix(limit)) { BroadcastShape.write($1, catalog, to: &$0) }
            writer.member("next_cursor", found.count > limit ? found[limit - 1].broadcast.id.description : nil)
        }
    }
}

extension Schema {
    static let broadcast = Schema(
        "Broadcast",
        [
            "id": .uuid,
            "org": .string,
            "job_id": .string,
            "entry": .string,
            "topic": .string.orNull("Null for everyone."),
            "type": .string.orNull("The type of its notifications."),
            "title": .string.orNull(
                "The title in the default locale; null if the current catalog cannot render it."),
            "body": .string.orNull,
            "lane": .lane,
            "created_at": .time,
            "state": .cases(of: Broadcast.State.self),
            "reason": .string.orNull("Why it failed."),
            "held": .bool("Whether the expansion waits for room in the delivery streams."),
            "audience": .count.orNull("The audience counted at the start."),
            "selected": .count("Users processed so far."),
            "stored": .count("Users with a stored notification."),
            "not_stored": .map(of: .count)(
                "Users without one, by reason; `held` for a digest, `text_failed` if rendering failed and a "
                    + "dead letter was written, `missed` if their local time had passed too long ago, `left_topic` if "
                    + "they left the topic before it."
            ),
            "pages": .count,
            "chains_done": .integer(0...16),
            "withdrawn": .count("Notifications withdrawn by a cancellation."),
        ])
}
