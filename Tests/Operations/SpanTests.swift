// Carillon · SpanTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Support
import Testing
import Tracing

@testable import Operations

@Suite(.timeLimit(.minutes(10)))
struct SpanTests {
    private static let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    private struct Moment: TracerInstant {
        let nanosecondsSinceEpoch: UInt64

        static func < (left: Moment, right: Moment) -> Bool {
            left.nanosecondsSinceEpoch < right.nanosecondsSinceEpoch
        }
    }

    private struct Fields: Extractor, Injector {
        func extract(key: String, from carrier: [String: String]) -> String? { carrier[key] }
        func inject(_ value: String, forKey key: String, into carrier: inout [String: String]) { carrier[key] = value }
    }

    private static func start(_ tracer: SpanTracer, _ header: String?, at nanoseconds: UInt64 = 5) -> RecordedSpan {
        tracer.startSpan(
            "work",
            context: ServiceContext(traceParent: header),
            ofKind: .client,
            at: Moment(nanosecondsSinceEpoch: nanoseconds),
            function: "",
            file: "",
            line: 0
        )
    }

    @Test("a sampled span is queued once when it ends, with its parent")
    func recorded() throws {
        let queue = SpanQueue()
        let span = Self.start(SpanTracer(queue: queue, random: { 0xAB }), Self.parent)
        #expect(span.isRecording)
        #expect(span.context.trace?.traceParent == "00-0af7651916cd43dd8448eb211c80319c-00000000000000ab-01")
        span.attributes["answer"] = 42
        span.setStatus(SpanStatus(code: .error, message: "late"))
        #expect(queue.take(10).isEmpty)
        span.end(at: Moment(nanosecondsSinceEpoch: 9))
        span.end(at: Moment(nanosecondsSinceEpoch: 99))
        let spans = queue.take(10)
        #expect(spans.count == 1)
        let finished = try #require(spans.first)
        #expect(finished.parent == 0xB7AD_6B71_6920_3331)
        #expect(finished.start == 5)
        #expect(finished.end == 9)
        #expect(!span.isRecording)
    }

    @Test(
        "a span without a sampled trace is not recorded, and its context passes through",
        arguments: [nil, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "nonsense"]
    )
    func notRecorded(header: String?) {
        let queue = SpanQueue()
        let span = Self.start(SpanTracer(queue: queue), header)
        #expect(!span.isRecording)
        #expect(span.context.trace == header.flatMap { TraceContext($0) })
        span.end(at: Moment(nanosecondsSinceEpoch: 9))
        #expect(queue.take(10).isEmpty)
    }

    @Test("a full queue drops new spans")
    func full() {
        let queue = SpanQueue()
        let tracer = SpanTracer(queue: queue)
        for _ in 0..<SpanQueue.capacity + 10 {
            Self.start(tracer, Self.parent).end(at: Moment(nanosecondsSinceEpoch: 9))
        }
        #expect(queue.take(.max).count == SpanQueue.capacity)
    }

    @Test("the context is injected and extracted by its field")
    func propagation() {
        let tracer = SpanTracer(queue: SpanQueue())
        var context = ServiceContext.topLevel
        tracer.extract(["traceparent": Self.parent], into: &context, using: Fields())
        #expect(context.trace?.traceParent == Self.parent)
        var carrier: [String: String] = [:]
        tracer.inject(context, into: &carrier, using: Fields())
        #expect(carrier == ["traceparent": Self.parent])
        tracer.extract([:], into: &context, using: Fields())
        #expect(context.trace == nil)
    }

    @Test("spans are encoded as OTLP requires: hexadecimal ids, times and numbers as text")
    func document() throws {
        let queue = SpanQueue()
        let span = Self.start(SpanTracer(queue: queue, random: { 1 }), Self.parent)
        span.attributes["push.attempt"] = 2
        span.attributes["push.provider"] = "fcm"
        span.attributes["ok"] = true
        span.setStatus(SpanStatus(code: .error, message: "UNREGISTERED"))
        span.end(at: Moment(nanosecondsSinceEpoch: 9))
        let value = try JSONParser.parse(SpanDocument.encode(queue.take(1), service: "carillon-test"))
        let resource = try #require(value["resourceSpans"]?.array?.first)
        #expect(
            resource["resource"]?["attributes"]?.array?.first?["value"]?["stringValue"]?.string == "carillon-test")
        let written = try #require(resource["scopeSpans"]?.array?.first?["spans"]?.array?.first)
        #expect(written["traceId"]?.string == "0af7651916cd43dd8448eb211c80319c")
        #expect(written["spanId"]?.string == "0000000000000001")
        #expect(written["parentSpanId"]?.string == "b7ad6b7169203331")
        #expect(written["name"]?.string == "work")
        #expect(written["kind"]?.integer == 3)
        #expect(written["startTimeUnixNano"]?.string == "5")
        #expect(written["endTimeUnixNano"]?.string == "9")
        #expect(written["status"]?["code"]?.integer == 2)
        var attributes: [String: JSONValue] = [:]
        for attribute in written["attributes"]?.array ?? [] {
            attributes[attribute["key"]?.string ?? ""] = attribute["value"]
        }
        #expect(attributes["push.attempt"]?["intValue"]?.string == "2")
        #expect(attributes["push.provider"]?["stringValue"]?.string == "fcm")
        #expect(attributes["ok"]?["boolValue"]?.bool == true)
    }

    /// Runs an export and reports when its shutdown begins.
    private struct ReportingExport: Service {
        let export: SpanExport
        let report: @Sendable () -> Void

        func run() async throws {
            try await withGracefulShutdownHandler {
                try await self.export.run()
            } onGracefulShutdown: {
                self.report()
            }
        }
    }

    /// Exports `count` spans, and begins the shutdown once the collector has the first request.
    ///
    /// - Parameters:
    ///   - timeout: the limit of each request.
    ///   - lost: counts lost spans.
    ///   - report: runs when the shutdown begins.
    private static func export(
        _ count: Int,
        to collector: HTTPStub,
        timeout: Duration,
        lost: Counter = Counter(label: "lost"),
        logger: Logger,
        report: @escaping @Sendable () -> Void = {}
    ) async throws {
        let queue = SpanQueue()
        let tracer = SpanTracer(queue: queue)
        for _ in 0..<count { Self.start(tracer, Self.parent).end(at: Moment(nanosecondsSinceEpoch: 9)) }
        var configuration = TransferConfiguration()
        configuration.allowPlainHTTP = true
        let export = SpanExport(
            queue: queue, endpoint: collector.url, headers: [], service: "carillon-test",
            transfer: try TransferClient(configuration: configuration, logger: TestLog.logger), timeout: timeout,
            lost: lost, logger: logger)
        let service = ReportingExport(export: export, report: report)
        let group = ServiceGroup(
            configuration: ServiceGroupConfiguration(services: [.init(service: service)], logger: TestLog.logger))
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            try await eventually("the collector has a request") { collector.requests > 0 }
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
    }

    @Test("a shutdown during an export loses no span")
    func shutdown() async throws {
        let (answers, answer) = AsyncStream.makeStream(of: Void.self)
        let lines = LogRecorder(from: .warning) { "\($0.message)" }
        try await HTTPStub.with(.init(body: "{}", hold: { for await _ in answers {} })) { collector in
            try await Self.export(2_048, to: collector, timeout: longestWait, logger: lines.logger) { answer.finish() }
            var count = 0
            for request in collector.received {
                let scopes = try JSONParser.parse(stored: request.body)["resourceSpans"]?.array?.first?["scopeSpans"]
                count += scopes?.array?.first?["spans"]?.array?.count ?? 0
            }
            #expect(count == 2_048)
        }
        #expect(lines.all.isEmpty)
    }

    @Test(
        "spans that the collector rejects among others are counted as lost, and logged once",
        arguments: [
            (#"{"partialSuccess":{"rejectedSpans":"37","errorMessage":"too old"}}"#, 148),
            (#"{"partialSuccess":{"rejectedSpans":5}}"#, 20), (#"{"partialSuccess":{"rejectedSpans":9999}}"#, 2_048),
            (#"{"partialSuccess":{"rejectedSpans":"0","errorMessage":"write larger batches"}}"#, 0),
            (#"{"partialSuccess":{}}"#, 0), ("{}", 0), ("", 0), ("[", 0),
        ]
    )
    func rejected(answer: String, count: Int) async throws {
        let lines = LogRecorder(from: .warning) { "\($0.message)" }
        let registry = PrometheusRegistry()
        let lost = Counter(label: "lost", dimensions: [], factory: registry)
        try await HTTPStub.with(.init(body: answer)) { collector in
            try await Self.export(2_048, to: collector, timeout: longestWait, lost: lost, logger: lines.logger)
        }
        #expect(registry.render().contains("\nlost \(count)\n"))
        #expect(lines.all == (count > 0 ? ["collector rejected spans; they are lost"] : []))
    }

    @Test("a silent collector delays the shutdown for one request at most")
    func silent() async throws {
        let lines = LogRecorder(from: .warning) { "\($0.message)" }
        try await HTTPStub.with(.init(body: "", isSilent: true)) { collector in
            try await Self.export(2_048, to: collector, timeout: .seconds(10), logger: lines.logger)
            #expect(collector.requests == 1)
        }
        #expect(lines.all == ["collector did not answer; spans are lost"])
    }
}
