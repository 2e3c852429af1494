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
        answers: [
            .ok(
                "The texts, those of the default locale first.",
                .object(["previews": .list(of: .preview, max: 1_000)])),
            422,
        ])

    private func preview(_ request: Request, _ context: APIContext) async throws -> Response {
        var body = try await FieldReader(body: request, of: Self.preview)
        let content = self.content(&body)
        try body.finish()
        guard let content, let type = self.base.catalog[content.type] else {
            throw Problem(.unprocessableContent, "the job is missing")
        }
        let previews = try self.previews(content, channels: type.channels(of: content))
        return Response.object(capacity: 4_096) { writer in
            writer.array("previews", previews) { $1.write(to: &$0) }
        }
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

    func write(to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("locale", self.locale)
        let title = InlineMarks.plain(self.message.title)
        let body = InlineMarks.plain(self.message.body)
        self.write("in_app", .inApp, title: self.message.title, body: self.message.body, to: &writer)
        self.write("push", .push, title: title, body: body, to: &writer)
        writer.key("email")
        if self.channels.contains(.email) {
            let extras = self.content.extras
            let mail = MailParts(
                type: self.content.type, title: title, body: body, url: extras.url,
                platform: self.message.platform(completing: extras.platform))
            writer.beginObject()
            writer.member("subject", mail.subject)
            writer.member("text", mail.text)
            writer.member("html", mail.html)
            writer.endObject()
        } else {
            writer.null()
        }
        writer.endObject()
    }

    private func write(
        _ name: StaticString,
        _ channel: Channels,
        title: String,
        body: String,
        to writer: inout JSONWriter
    ) {
        writer.key(name)
        guard self.channels.contains(channel) else { return writer.null() }
        writer.beginObject()
        writer.member("title", title)
        writer.member("body", body)
        writer.endObject()
    }
}

extension Schema {
    static let preview = Schema(
        "Preview",
        [
            "locale": .string,
            "in_app": .object(["title": .string, "body": .string]).orNull("Null: the job does not use the channel."),
            "push": .object(["title": .string, "body": .string]).orNull,
            "email": .object(["subject": .string, "text": .string, "html": .string.orNull]).orNull,
        ])
}
