// Carillon · PreviewRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Hummingbird
import Storage

/// The texts and the audience of a job that is not sent yet, for admins: `/v1/admin/previews` and
/// `/v1/admin/audiences`.
struct PreviewRoutes {
    /// The most users of an audience that are counted.
    private static let mostCounted: Int64 = 1_000_000

    let base: GatewayBase

    func add(to routes: Routes) {
        routes.post("admin/previews", Self.preview, self.preview)
        routes.get("admin/audiences", Self.audience, self.audience)
    }

    private static let preview = Operation(
        "previewJob",
        "Renders the texts of a job for each channel and locale. Nothing is stored or sent.",
        scope: .admin,
        isReadOnly: true,
        body: .object(["job": .anyObject("The fields of a job; the audience may be left out.")], isClosed: true),
        answers: [.ok("The texts, those of the default locale first.", previewList.schema), 422])

    private static let previewList: Shape<[Preview]> = ["previews": .list(of: Preview.shape, max: 1_000) { $0 }]

    private func preview(_ request: Request, _ context: APIContext) async throws -> Response {
        var body = try await FieldReader(body: request, of: Self.preview)
        let content = self.content(&body)
        try body.finish()
        guard let content, let type = self.base.catalog[content.type] else {
            throw Problem(.unprocessableContent, "the job is missing")
        }
        let previews = try self.previews(content, channels: type.channels(of: content))
        return .json(previews, as: Self.previewList, capacity: 4_096)
    }

    /// Reads and checks a job; one without an audience counts as a job for everyone.
    private func content(_ body: inout FieldReader) -> JobContent? {
        guard let job = body.value["job"], let members = job.object else {
            body.fault("job", "must be a JSON object with the fields of a job")
            return nil
        }
        var fields = JobFields.flat(members)
        if !fields.contains(where: { ["user", "users", "topic", "all"].contains($0.name) }) {
            fields.append((name: "all", value: Array("true".utf8)))
        }
        do throws(JobFaults) {
            guard case .notification(let content) = try self.base.catalog.checkedJob(fields, from: job).payload else {
                body.fault("job.event", "has no text to preview")
                return nil
            }
            return content
        } catch {
            for fault in error.faults { body.fault("job.\(fault.field)", fault.reason) }
            return nil
        }
    }

    private func previews(_ content: JobContent, channels: Channels) throws(Problem) -> [Preview] {
        guard let renderer = self.base.catalog.renderer(content) else {
            var message = RenderedMessage()
            message.title = content.title
            message.body = content.body
            let locale = self.base.catalog.defaultLocale.key
            return [Preview(content: content, message: message, locale: locale, channels: channels)]
        }
        do throws(JobFault) {
            return try renderer.all().map {
                Preview(content: content, message: $0.message, locale: $0.locale, channels: channels)
            }
        } catch {
            throw Problem(faults: [error])
        }
    }

    private static let audience = Operation(
        "getAudience",
        "Counts the users that a job to a topic, or to all, has now, up to a million.",
        scope: .admin,
        query: ["topic?": .text(JobLimits.name)("A topic."), "all?": .bool("true: all users.")],
        answers: [.ok("The count.", .object(["count": .count, "complete": .bool("False if there are more.")]))])

    private func audience(_ request: Request, _ context: APIContext) async throws -> Response {
        var query = FieldReader(query: request, of: Self.audience)
        let topic = query.text("topic", limit: JobLimits.name)
        let isAll = query.flag("all") ?? false
        if (topic != nil) == isAll { query.fault("topic", "give a topic, or all=true") }
        try query.finish()
        let count = try await self.base.database.broadcasts.size(topic: topic, bound: Self.mostCounted + 1)
        return Response.object { writer in
            writer.member("count", min(count, Self.mostCounted))
            writer.member("complete", count <= Self.mostCounted)
        }
    }
}

/// The texts of one locale, by channel.
private struct Preview {
    let content: JobContent
    let message: RenderedMessage
    let locale: String
    let channels: Channels

    private typealias Text = (title: String, body: String)

    static let shape = Shape<Preview>(
        "Preview",
        [
            "locale": .value(.string) { $0.locale },
            "in_app": .object(text, "Null: the job does not use the channel.") {
                $0.channels.contains(.inApp) ? $0.marked : nil
            },
            "push": .object(text) { $0.channels.contains(.push) ? $0.plain : nil },
            "email": .object([
                "subject": .value(.string) { $0.subject },
                "text": .value(.string) { $0.text },
                "html": .value(.string) { $0.html },
            ]) { $0.mail },
        ])

    private static let text: Shape<Text> = [
        "title": .value(.string) { $0.title },
        "body": .value(.string) { $0.body },
    ]

    private var marked: Text { (self.message.title, self.message.body) }
    private var plain: Text { (InlineMarks.plain(self.message.title), InlineMarks.plain(self.message.body)) }

    private var mail: MailParts? {
        guard self.channels.contains(.email) else { return nil }
        let (extras, plain) = (self.content.extras, self.plain)
        return MailParts(
            type: self.content.type, title: plain.title, body: plain.body, url: extras.url,
            platform: self.message.platform(completing: extras.platform))
    }
}
