// Carillon · AdminJobRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Operations
import Storage

/// Lists recent jobs and their notifications, and sends them again, for admins: `/v1/admin/jobs`.
struct AdminJobRoutes {
    /// The most notifications that a call sends again.
    private static let mostResent = 1_000
    /// The most characters of a key; a job's id has room for it.
    private static let longestKey = 64

    private static let org: Fields = ["org?": .text(JobLimits.org)("Only of this organisation.")]
    private static let type: Fields = ["type?": .text(JobLimits.name)("Only of this type.")]
    private static let status: Fields = ["status?": .cases(of: NotificationStatus.self)("Only with this status.")]

    let jobs: JobServices

    func add(to routes: Routes) {
        routes.get("admin/jobs", Self.list, self.list)
        routes.get("admin/jobs/:id/notifications", Self.notifications, self.notifications)
        routes.post("admin/jobs/:id/resend", Self.resendJob, self.resendJob)
        routes.post("admin/notifications/:id/resend", Self.resend, self.resend)
    }

    private var store: JobListStore { self.jobs.base.database.jobs }

    // MARK: Lists

    private static let list = Operation(
        "listJobs",
        "Lists the jobs whose notifications were stored last, newest first.",
        "A page looks at up to 20,000 notifications, so it may have fewer jobs than `limit`. The notifications of a "
            + "large job lie on several pages.",
        scope: .admin,
        query: type + status + org + [
            "since?": .time("The earliest time of storing."),
            "until?": .time("The end of the time range, exclusive."),
            "limit?": .integer(1...100, default: 20)("The most jobs."),
            "cursor?": .text(256)("`next_cursor` of the previous page."),
        ],
        answers: [.ok("The page.", page.schema)])

    private static let page: Shape<JobListStore.Page> = [
        "jobs": .list(of: JobListStore.Item.shape, max: 100) { $0.jobs },
        "next_cursor": .value(.string) { $0.next?.text },
        "reached": .value(.time, "The page has looked at everything stored after this.") { $0.reached },
    ]

    private func list(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.list)
        var filter = JobListStore.Filter()
        filter.type = query.text("type", limit: JobLimits.name)
        filter.status = query.choice("status", of: NotificationStatus.self)
        filter.org = query.text("org", limit: JobLimits.org)
        filter.since = query.moment("since")
        filter.until = query.moment("until")
        filter.limit = query.limit()
        if let text = query.text("cursor", limit: 256) {
            filter.after = JobListStore.Cursor(text)
            if filter.after == nil { query.fault("cursor", "must be next_cursor of a page") }
        }
        try query.finish()
        return .json(try await self.store.list(filter), as: Self.page)
    }

    private static let notifications = Operation(
        "listJobNotifications",
        "Lists the notifications of a job, by user.",
        "A page looks at up to 20,000 notifications, so with `status` it may have fewer than `limit`, even none, and "
            + "still a `next_cursor`.",
        scope: .admin,
        path: JobControlRoutes.id,
        query: JobControlRoutes.org + status + [
            "limit?": .integer(1...100, default: 20)("The most items."),
            "cursor?": .text(JobLimits.user)("`next_cursor` of the previous page."),
        ],
        answers: [.ok("The page.", notificationPage.schema), 404, 409])

    private static let notificationPage = Shape.page(
        "notifications",
        of: Shape(
            "JobNotification",
            ["user_id": .value(.text(JobLimits.user)) { $0.notification.user }] + PeopleStore.Item.shape))

    private func notifications(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.notifications)
        let limit = query.limit()
        let last = query.text("cursor", limit: JobLimits.user)
        let status = query.choice("status", of: NotificationStatus.self)
        let name = try await JobControlRoutes(jobs: self.jobs).name(context, query)
        let page = try await self.page(of: name, status: status, after: last, limit: limit)
        return .json(Page(page.items[...], next: page.next), as: Self.notificationPage)
    }

    /// Returns notifications of a job by user, starting after the user `last`.
    ///
    /// - Throws: ``Problem`` 404 if the job is unknown.
    private func page(
        of name: CancellationStore.Name,
        status: NotificationStatus?,
        after last: String?,
        limit: Int
    ) async throws -> JobListStore.NotificationPage {
        let page = try await self.store.notifications(of: name, status: status, after: last ?? "", limit: limit)
        if page.items.isEmpty, page.next == nil, last == nil,
            try await self.jobs.control.find(name, isCounted: false) == nil
        {
            throw JobControlRoutes.unknown
        }
        return page
    }

    // MARK: Sending again

    private static let key: Fields = [
        "key?": .text(longestKey)("Any text of yours; the same key sends a notification once. Random if absent.")
    ]

    private static let resend = Operation(
        "resendNotification",
        "Sends a notification again, as a new job for its user.",
        "It takes the channels of its type; current preferences, quiet hours and caps apply.",
        scope: .admin,
        path: ["id": .uuid("A notification.")],
        query: ["user": .text(JobLimits.user)("Its user.")] + key,
        answers: [.accepted("Redis has the job.", JobRoutes.accepted.schema), 404, 422])

    private func resend(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.resend)
        let user = query.text("user", limit: JobLimits.user, isRequired: true) ?? ""
        let key = query.text("key", limit: Self.longestKey) ?? Identifier.random().description
        try query.finish()
        let id = try context.pathID()
        guard let record = try await self.jobs.base.database.traces.record(id, user: user), record.gathering == nil
        else { throw Problem.noSuch("notification") }
        let notification = record.notification
        let repeats = self.repeats(of: [notification], key: key)
        guard let entry = try await self.append(repeats).first else {
            let faults = JobFaults(repeats.faults)
            throw Problem(.unprocessableContent, "it cannot be sent again: \(faults)", faults: faults.faults)
        }
        let answer = (id: "resend:\(notification.id):\(key)", lane: notification.lane, entry: entry.name)
        return .json(answer, as: JobRoutes.accepted, status: .accepted)
    }

    private static let resendJob = Operation(
        "resendJob",
        "Sends the notifications of a job that have a status again, as new jobs for their users.",
        "Each call looks at up to the next 20,000 notifications of the job, by user, and sends up to 1,000 of them, "
            + "perhaps none. Repeat with `next_cursor` as `cursor` and the same `key` until it is null.",
        scope: .admin,
        path: JobControlRoutes.id,
        body: .object(
            [
                "key?": .text(longestKey).orNull("Any text; the same key sends each once. Random if absent."),
                "org?": .text(JobLimits.org).orNull("The organisation of the job; none if absent."),
                "status": .cases(of: NotificationStatus.self)("The status of the notifications to send."),
                "cursor?": .text(JobLimits.user).orNull("`next_cursor` of the previous call."),
            ], isClosed: true),
        answers: [
            .accepted(
                "Redis has the jobs.",
                .object([
                    "count": .count("Notifications that this call sent again."),
                    "refused": .count("Notifications that the catalog no longer accepts."),
                    "next_cursor": .string.orNull,
                ])),
            404, 409, 422,
        ])

    private func resendJob(_ request: Request, _ context: APIContext) async throws -> Response {
        let id = try context.pathText("id", limit: JobLimits.id)
        var body = try await FieldReader(body: request, of: Self.resendJob)
        let org = body.text("org", limit: JobLimits.org)
        let status = body.choice("status", of: NotificationStatus.self, isRequired: true)
        let last = body.text("cursor", limit: JobLimits.user)
        let key = body.text("key", limit: Self.longestKey) ?? Identifier.random().description
        try body.finish()
        let name = try await JobControlRoutes(jobs: self.jobs).name(org: org, id: id)
        let page = try await self.page(of: name, status: status, after: last, limit: Self.mostResent)
        let notifications = page.items.map(\.notification)
        let sent = try await self.append(self.repeats(of: notifications, key: key)).count
        return Response.object(status: .accepted) { writer in
            writer.member("count", sent)
            writer.member("refused", notifications.count - sent)
            writer.member("next_cursor", page.next)
        }
    }

    /// The jobs that send notifications again.
    private struct Repeats {
        var jobs: [(lane: Lane, org: String, fields: [(name: String, value: [UInt8])])] = []
        /// Why the catalog no longer accepts the others.
        var faults: [JobFault] = []
    }

    private func repeats(of notifications: [Notification], key: String) -> Repeats {
        let now = self.jobs.base.now()
        var repeats = Repeats()
        for notification in notifications {
            do throws(JobFaults) {
                let fields = try RepeatedJob.resend(notification, key: key, now: now, catalog: self.jobs.base.catalog)
                repeats.jobs.append((notification.lane, notification.org, fields))
            } catch {
                repeats.faults += error.faults
            }
        }
        return repeats
    }

    private func append(_ repeats: Repeats) async throws -> [AppendedJob] {
        guard !repeats.jobs.isEmpty else { return [] }
        try await self.jobs.requireRoom(for: repeats.jobs)
        return try await self.jobs.stream.append(repeats.jobs.map { ($0.lane, $0.fields) })
    }
}

extension JobListStore.Item {
    fileprivate static let shape = Shape<JobListStore.Item>(
        "ListedJob",
        [
            "job_id": .value(.string, "The job's own id.") { $0.job },
            "entry": .value(.string) { $0.entry },
            "org_id": .value(.string) { $0.org },
            "type": .value(.string) { $0.type },
            "title": .value(.string) { $0.title },
            "lane": .value(.lane) { $0.lane },
            "notifications": .value(.count, "Its notifications that the page has looked at.") {
                $0.statuses.reduce(0) { $0 + $1.count }
            },
            "statuses": .list(
                of: [
                    "status": .value(.cases(of: NotificationStatus.self)) { $0.status },
                    "count": .value(.count) { $0.count },
                ], max: 16
            ) { $0.statuses },
            "newest_at": .value(.time) { $0.newestAt },
            "oldest_at": .value(.time) { $0.oldestAt },
        ])
}
