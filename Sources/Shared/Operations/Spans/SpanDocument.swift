// Carillon · SpanDocument.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Tracing

/// OTLP's JSON encoding of spans: an `ExportTraceServiceRequest` with one resource.
enum SpanDocument {
    /// - Parameter service: the service name for the collector.
    static func encode(_ spans: [FinishedSpan], service: String) -> [UInt8] {
        var writer = JSONWriter(capacity: 512 * (spans.count + 1))
        writer.beginObject()
        writer.key("resourceSpans")
        writer.beginArray()
        writer.beginObject()
        writer.key("resource")
        writer.beginObject()
        writer.key("attributes")
        writer.beginArray()
        self.write("service.name", .string(service), to: &writer)
        writer.endArray()
        writer.endObject()
        writer.key("scopeSpans")
        writer.beginArray()
        writer.beginObject()
        writer.key("scope")
        writer.beginObject()
        writer.member("name", "carillon")
        writer.endObject()
        writer.key("spans")
        writer.beginArray()
        for span in spans { self.write(span, to: &writer) }
        writer.endArray()
        writer.endObject()
        writer.endArray()
        writer.endObject()
        writer.endArray()
        writer.endObject()
        return writer.bytes
    }

    private static func write(_ span: FinishedSpan, to writer: inout JSONWriter) {
        writer.beginObject()
        // 64-bit numbers are strings in JSON (proto3), ids are hexadecimal (OTLP).
        writer.member("traceId", span.trace.traceID)
        writer.member("spanId", span.trace.spanID)
        writer.member("parentSpanId", TraceContext.digits(span.parent))
        writer.member("name", span.name)
        writer.member("startTimeUnixNano", String(span.start))
        writer.member("endTimeUnixNano", String(span.end))
        writer.member("kind", self.number(span.kind))
        writer.key("attributes")
        writer.beginArray()
        span.attributes.forEach { name, value in self.write(name, value, to: &writer) }
        writer.endArray()
        if let status = span.status {
            writer.key("status")
            writer.beginObject()
            writer.member("code", status.code == .error ? 2 : 1)
            if let message = status.message {
                writer.member("message", message)
            }
            writer.endObject()
        }
        writer.endObject()
    }

    private static func write(_ name: String, _ value: SpanAttribute, to writer: inout JSONWriter) {
        writer.beginObject()
        writer.member("key", name)
        writer.key("value")
        writer.beginObject()
        switch value {
        case .int32(let number): self.write(Int64(number), to: &writer)
        case .int64(let number): self.write(number, to: &writer)
        case .bool(let flag):
            writer.member("boolValue", flag)
        case .string(let text):
            writer.member("stringValue", text)
        default:
            writer.member("stringValue", "\(value)")
        }
        writer.endObject()
        writer.endObject()
    }

    private static func write(_ number: Int64, to writer: inout JSONWriter) {
        writer.member("intValue", String(number))
    }

    /// The numbers of OTLP's `SpanKind`.
    private static func number(_ kind: SpanKind) -> Int {
        switch kind {
        case .internal: 1
        case .server: 2
        case .client: 3
        case .producer: 4
        case .consumer: 5
        @unknown default: 0
        }
    }
}
