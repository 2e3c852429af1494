// Carillon · JobRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import Logging
import Operations
import Storage
import Tracing

/// Jobs from apps without a Redis client: `/v1/jobs`.
struct JobRoutes {
    private static let largestBatch = 1_000
    /// Room for a full batch of jobs with more than the usual data.
    private static let largestBody = 16 * 1024 * 1024

    private static let traceHeader = HTTPField.Name(SpanTracer.field)

    /// A job that was checked, as it goes into the stream.
    private struct Checked {
        let id: String
        let lane: Lane
        let fields: [(name: String, value: [UInt8])]
    }

    let services: APIServices

    func add(to group: RouterGroup<APIContext>) {
        group.post("jobs", use: self.enqueue)
    }

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

    /// - Parameter trace: the request's place in a trace, which is that of jobs that name none themselves.
    private func enqueue(_ request: Request, _ context: APIContext, trace: TraceContext?) async throws -> Response {
        let allowance = try context.requireService(allowsLimited: true).allowance
        let value = try await JSONBody.read(request, isRequired: true, limit: Self.largestBody)
        let key = HTTPField.Name("Idempotency-Key").flatMap { request.headers[$0] }
        let isBatch = value.array != nil
        let bodies = value.array ?? [value]
        guard (1...Self.largestBatch).contains(bodies.count) else {
            throw Self.refusal("jobs", "must be 1 to \(Self.largestBatch)")
        }
        if key != nil, isBatch { throw Self.refusal("Idempotency-Key", "goes with a single job") }
        var faults: [JobFault] = []
        var forbidden: [JobFault] = []
        var jobs: [Checked] = []
        for (index, body) in bodies.enumerated() {
            func placed(_ fault: JobFault) -> JobFault {
                JobFault(isBatch ? "[\(index)].\(fault.field)" : fault.field, fault.reason)
            }
            // First of all, so that what may not be sent is not told about either.
            forbidden += Self.forbidden(body, allowance).map { placed($0) }
            do throws(JobFaults) {
                jobs.append(try self.check(body, key: key, trace: trace))
            } catch {
                faults += error.faults.map { placed($0) }
            }
        }
        guard forbidden.isEmpty else {
            throw Problem(.forbidden, "the token does not allow such jobs", faults: forbidden)
        }
        guard faults.isEmpty else {
            throw Problem(.unprocessableContent, "some fields are at fault", faults: faults)
        }
        try await self.services.requireRoom(in: Set(jobs.map(\.lane)))
        let entries = try await self.services.jobs.append(jobs.map { ($0.lane, $0.fields) })
        for (job, entry) in zip(jobs, entries) {
            // Dispatchers name the same id and entry.
            context.logger.debug(
                "job accepted",
                metadata: ["job.id": "\(job.id)", "job.entry": "\(entry)", "job.lane": "\(job.lane.rawValue)"])
        }
        return Response.object(status: .accepted) { writer in
            if isBatch {
                writer.key("jobs")
                writer.beginArray()
                for (job, entry) in zip(jobs, entries) {
                    writer.beginObject()
                    self.write(job, entry, to: &writer)
                    writer.endObject()
                }
                writer.endArray()
            } else if let job = jobs.first, let entry = entries.first {
                self.write(job, entry, to: &writer)
            }
        }
    }

    private static func refusal(_ field: String, _ reason: String) -> Problem {
        Problem(.badRequest, "\(field) \(reason)", faults: [JobFault(field, reason)])
    }

    /// What a job asks for that the token does not allow, by the fields as they came.
    static func forbidden(_ body: JSONValue, _ allowance: JobAllowance) -> [JobFault] {
        guard allowance.isLimited, let members = body.object?.filter({ $0.value != .null }) else { return [] }
        let type = members.first { $0.key == "type" }.map { member in
            member.value.string ?? String(decoding: JSONWriter.bytes(of: member.value), as: UTF8.self)
        }
        return allowance.faults(type: type, fields: members.map(\.key))
    }

    private func write(_ job: Checked, _ entry: String, to writer: inout JSONWriter) {
        writer.member("id", job.id)
        writer.member("lane", job.lane.rawValue)
        writer.member("entry", entry)
    }

    /// Checks a job with the decoder that the dispatcher uses.
    private func check(_ body: JSONValue, key: String?, trace: TraceContext?) throws(JobFaults) -> Checked {
        guard let members = body.object else { throw JobFaults([JobFault("job", "must be a JSON object")]) }
        var fields = JobFields.flat(members)
        if let key {
            if let named = body["id"]?.string, named != key {
                throw JobFaults([JobFault("id", "differs from Idempotency-Key")])
            }
            if body["id"] == nil { fields.append(("id", Array(key.utf8))) }
        } else if body["id"] == nil || body["id"] == .null {
            let random = NotificationID(high: .random(in: .min ... .max), low: .random(in: .min ... .max))
            fields.append(("id", Array(random.asRandomUUID.description.utf8)))
        }
        if let trace, body[SpanTracer.field] == nil {
            fields.append((SpanTracer.field, Array(trace.traceParent.utf8)))
        }
        let job = try self.services.catalog.job(
            fields.map { ($0.name, $0.value[...]) })
        var lane = Lane.normal
        if case .notification(let content) = job.payload {
            guard let type = self.services.catalog[content.type] else {
                throw JobFaults([JobFault("type", "is not in the catalog")])
            }
            lane = content.lane ?? type.lane
            let faults = self.services.catalog.variableFaults(content)
            guard faults.isEmpty else { throw JobFaults(faults) }
        }
        return Checked(id: job.id ?? "", lane: lane, fields: fields)
    }
}
