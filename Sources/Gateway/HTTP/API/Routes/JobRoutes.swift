// Carillon · JobRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Logging
import Operations
import Storage
import Tracing

/// Enqueues jobs for apps without a Redis client: `/v1/jobs`.
struct JobRoutes {
    private static let largestBatch = 1_000
    /// Fits a full batch of jobs with above-average data.
    private static let largestBody = 16 * 1024 * 1024

    private static let traceHeader = HTTPField.Name(SpanTracer.field)

    /// A valid job, ready to append to the stream.
    private struct Checked {
        let id: String
        let lane: Lane
        /// Empty for none.
        let org: String
        let fields: [(name: String, value: [UInt8])]
    }

    let jobs: JobServices

    func add(to routes: Routes) {
        routes.post("jobs", Self.enqueue, self.enqueue)
    }

    private static let enqueue = Operation(
        "enqueueJobs",
        "Enqueues one or several jobs.",
        scope: .sender,
        headers: [
            "Idempotency-Key?": .string(max: JobLimits.id)("The id of a single job."),
            "traceparent?": .string(
                "The W3C trace context for jobs that have none; ignored if malformed."),
        ],
        body: .oneOf(.job, .list(of: .job, min: 1, max: 1000)),
        answers: [
            .accepted(
                "Redis has stored them.",
                .oneOf(accepted.schema, .object(["jobs": .list(of: accepted.schema, max: 1000)])))
        ])

    static let accepted = Shape<(id: String, lane: Lane, entry: String)>(
        "JobAccepted",
        [
            "id": .value(.text(JobLimits.id)) { $0.id },
            "lane": .value(.lane) { $0.lane.rawValue },
            "entry": .value(.string) { $0.entry },
        ])

    private func enqueue(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let name = Self.traceHeader, let header = request.headers[name] else {
            return try await self.enqueue(request, context, trace: nil)
        }
        return try await withSpan("POST /v1/jobs", context: ServiceContext(traceParent: header), ofKind: .server) {
            span in
            let response = try await self.enqueue(request, context, trace: span.context.trace)
            span.attributes["http.response.status_code"] = Int(response.status.code)
            return response
        }
    }

    /// - Parameter trace: the trace context for jobs that have none.
    private func enqueue(_ request: Request, _ context: APIContext, trace: TraceContext?) async throws -> Response {
        let allowance = try context.requireService(allowsLimited: true).allowance
        let value = try await FieldReader.body(request, limit: Self.largestBody)
        let key = HTTPField.Name("Idempotency-Key").flatMap { request.headers[$0] }
        let isBatch = value.array != nil
        let bodies = try value.array ?? [FieldReader(value).value]
        guard (1...Self.largestBatch).contains(bodies.count) else {
            throw Self.refusal("jobs", "must be 1 to \(Self.largestBatch)")
        }
        if key != nil, isBatch {
            throw Self.refusal("Idempotency-Key", "is for a single job; send one job or leave it out")
        }
        var faults: [JobFault] = []
        var forbidden: [JobFault] = []
        var jobs: [Checked] = []
        for (index, body) in bodies.enumerated() {
            func prefixed(_ fault: JobFault) -> JobFault {
                JobFault(isBatch ? "[\(index)].\(fault.field)" : fault.field, fault.reason)
            }
            // Check permission first, so that a refused job reveals nothing else.
            forbidden += Self.forbidden(body, allowance).map { prefixed($0) }
            do throws(JobFaults) {
                jobs.append(try self.check(body, key: key, trace: trace))
            } catch {
                faults += error.faults.map { prefixed($0) }
            }
        }
        guard forbidden.isEmpty else {
            throw Problem(.forbidden, "the token does not allow such jobs", faults: forbidden)
        }
        guard faults.isEmpty else { throw Problem(faults: faults) }
        try await self.jobs.requireRoom(for: jobs.map { ($0.lane, $0.org, $0.fields) })
        let entries = try await self.jobs.stream.append(jobs.map { ($0.lane, $0.fields) })
        for (job, entry) in zip(jobs, entries) {
            // Dispatchers log the same id and entry.
            context.logger.debug(
                "job accepted",
                metadata: ["job.id": "\(job.id)", "job.entry": "\(entry.name)", "job.lane": "\(job.lane.rawValue)"])
        }
        return Response.object(status: .accepted) { writer in
            if isBatch {
                writer.array("jobs", zip(jobs, entries)) { writer, answer in
                    Self.accepted.write((answer.0.id, answer.0.lane, answer.1.name), to: &writer)
                }
            } else if let job = jobs.first, let entry = entries.first {
                Self.accepted.writeMembers(of: (job.id, job.lane, entry.name), to: &writer)
            }
        }
    }

    private static func refusal(_ field: String, _ reason: String) -> Problem {
        Problem(.badRequest, "\(field) \(reason)", faults: [JobFault(field, reason)])
    }

    /// Returns the fields of a job that the token does not allow.
    static func forbidden(_ body: JSONValue, _ allowance: JobAllowance) -> [JobFault] {
        guard allowance.isLimited, let members = body.object?.filter({ $0.value != .null }) else { return [] }
        let type = members.first { $0.key == "type" }.map { member in
            member.value.string ?? String(decoding: JSONWriter.bytes(of: member.value), as: UTF8.self)
        }
        return allowance.faults(type: type, fields: members.map(\.key))
    }

    /// Validates a job with the dispatcher's decoder.
    private func check(_ body: JSONValue, key: String?, trace: TraceContext?) throws(JobFaults) -> Checked {
        guard let members = body.object else { throw JobFaults([JobFault("job", "must be a JSON object")]) }
        var fields = JobFields.flat(members)
        if let named = fields.first(where: { $0.name == "id" })?.value {
            if let key, named != Array(key.utf8) { throw JobFaults([JobFault("id", "differs from Idempotency-Key")]) }
        } else {
            fields.append(("id", Array((key ?? Identifier.random().description).utf8)))
        }
        if let trace, body[SpanTracer.field] == nil {
            fields.append((SpanTracer.field, Array(trace.traceParent.utf8)))
        }
        let catalog = self.jobs.base.catalog
        let job = try catalog.checkedJob(fields, from: body)
        var lane = Lane.normal
        if case .notification(let content) = job.payload { lane = catalog.lane(of: content) }
        return Checked(id: job.id ?? "", lane: lane, org: job.org, fields: fields)
    }
}

extension Schema {
    static let job = Schema(
        "Job", "docs/jobs.md explains every field.",
        [
            "type?": .text(JobLimits.name).orNull("A type of the catalog; required without `event`."),
            "user?": .id(JobLimits.user).orNull,
            "users?": .list(of: .text(JobLimits.user), min: 1, max: JobLimits.users).orNull,
            "topic?": .text(JobLimits.name).orNull("Sends to the subscribers of a topic."),
            "all?": .constant(.bool(true)).orNull("Sends to everyone."),
            "except?": .list(of: .text(JobLimits.user), min: 1, max: JobLimits.users).orNull,
            "id?": .id(JobLimits.id).orNull,
            "org?": .id(JobLimits.org).orNull,
            "title?": .string(max: JobLimits.title).orNull,
            "body?": .string(max: JobLimits.body).orNull,
            "template?": .text(JobLimits.name).orNull,
            "vars?": .anyObject.orNull,
            "data?": .anyObject.orNull,
            "entity_type?": .text(JobLimits.name).orNull,
            "entity_id?": .id(JobLimits.name).orNull,
            "state?": .text(JobLimits.name).orNull,
            "url?": .text(JobLimits.url).orNull(
                "A path of the app, or a URL of any scheme but javascript, vbscript, data, blob and file."),
            "image?": .text(JobLimits.url, pattern: "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#:]").orNull("An https or http URL."),
            "category?": .text(JobLimits.name).orNull,
            "sound?": .text(JobLimits.name).orNull,
            "badge?": .integer(0...JobLimits.badge).orNull,
            "platform?": .anyObject.orNull(
                "Options by provider; unknown members are refused (docs/providers.md)."),
            "severity?": .severity.orNull,
            "delivery?": .delivery.orNull,
            "lane?": .lane.orNull,
            "push_priority?": .pushPriority.orNull("Defaults to the type's."),
            "channels?": .list(of: .channel, min: 1, max: 3).orNull,
            "collapse_key?": .text(64).orNull,
            "digest?": .text(JobLimits.name).orNull(
                "Jobs of a type with the same key become one notification per window."),
            "deliver_at?": .time.orNull("The earliest delivery."),
            "deliver_local?": .string.orNull(
                "The earliest delivery in each recipient's zone: HH:MM or YYYY-MM-DDTHH:MM."),
            "expires_at?": .time.orNull,
            "keep_until?": .time.orNull,
            "event?": .text(JobLimits.name).orNull,
            "args?": .list(of: .anything, max: JobLimits.json).orNull,
            "traceparent?": .string.orNull("The W3C trace context; ignored if malformed."),
        ], isClosed: true)
}
