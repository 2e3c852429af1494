// Carillon · SpanExport.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import ServiceLifecycle
import Synchronization
import Tracing

/// Exports spans in batches by OTLP over HTTP.
///
/// Spans of a request that fails, or that the collector rejects, are lost and counted.
package struct SpanExport: Service {
    /// Spans per request.
    private static let largestBatch = 512
    private static let interval: Duration = .seconds(1)

    private let queue: SpanQueue
    private let url: String
    private let headers: [(name: String, value: String)]
    private let service: String
    private let transfer: TransferClient
    private let timeout: Duration
    private let logger: Logger
    private let lost: Counter

    /// - Parameters:
    ///   - endpoint: the collector's base URL, such as `http://127.0.0.1:4318`.
    ///   - headers: request headers, such as a key.
    ///   - service: the service name for the collector.
    ///   - lost: counts the lost spans.
    init(
        queue: SpanQueue,
        endpoint: String,
        headers: [(name: String, value: String)],
        service: String,
        transfer: TransferClient,
        timeout: Duration = .seconds(5),
        lost: Counter = Counter(label: "carillon.spans.lost"),
        logger: Logger
    ) {
        self.queue = queue
        self.url = endpoint + "/v1/traces"
        self.headers = [("content-type", "application/json")] + headers
        self.service = service
        self.transfer = transfer
        self.timeout = timeout
        self.lost = lost
        self.logger = logger
    }

    package func run() async throws {
        while !Task.isShuttingDownGracefully, !Task.isCancelled {
            // The queue does not signal, so export every second. A shutdown ends the wait, not a
            // request.
            await cancelWhenGracefulShutdown { try? await Task.sleep(for: Self.interval) }
            await self.flush()
        }
        // Spans that ended during the shutdown.
        await self.flush()
        await self.transfer.shutdown()
    }

    private func flush() async {
        // Log once per flush, not once per batch.
        var hasWarned = false
        func report(_ count: Int, _ message: Logger.Message, _ metadata: Logger.Metadata) {
            self.lost.increment(by: count)
            if !hasWarned { self.logger.warning(message, metadata: metadata) }
            hasWarned = true
        }
        while true {
            let spans = self.queue.take(Self.largestBatch)
            guard !spans.isEmpty else { return }
            let request = TransferRequest(
                .post,
                url: self.url,
                headers: self.headers,
                body: SpanDocument.encode(spans, service: self.service),
                timeout: self.timeout
            )
            switch await self.transfer.perform(request) {
            case .answered(let response) where (200..<300).contains(response.status):
                let (rejected, reason) = Self.rejection(response.body)
                guard rejected > 0 else { break }
                report(min(rejected, spans.count), "collector rejected spans; they are lost", ["error": "\(reason)"])
            case .answered(let response):
                report(
                    spans.count, "collector refused spans; they are lost", ["http.status": "\(response.status)"])
            case .unanswered(let failure):
                report(spans.count, "collector did not answer; spans are lost", ["error": "\(failure)"])
                // An unreachable collector must not delay the exit once for each batch.
                if [.timeout, .connect, .resolve].contains(failure.reason), Task.isShuttingDownGracefully {
                    return self.lost.increment(by: self.queue.take(SpanQueue.capacity).count)
                }
            }
        }
    }

    /// Reads how many spans a collector rejected that accepted the others, and why.
    ///
    /// Source: OpenTelemetry, "OTLP Specification", partial success.
    private static func rejection(_ body: [UInt8]) -> (spans: Int, reason: String) {
        let answer = (try? JSONParser.parse(body))?["partialSuccess"]
        let count = answer?["rejectedSpans"]
        // JSON has 64-bit integers as text; some collectors write a number.
        let spans = count?.string.flatMap { Int($0) } ?? count?.integer.map { Int($0) } ?? 0
        return (spans, answer?["errorMessage"]?.string ?? "no reason given")
    }
}

extension SpanExport {
    /// Starts tracing to a collector; the caller must run the returned service.
    ///
    /// Call it once per process.
    ///
    /// - Parameter program: the service name if the settings have none.
    package static func start(
        _ settings: TraceSettings,
        program: String,
        logger: Logger
    ) throws(TransferError) -> SpanExport {
        var configuration = TransferConfiguration()
        // The collector is usually on this machine; the operator may choose plain HTTP elsewhere.
        configuration.allowPlainHTTP = true
        configuration.maximumInFlight = 2
        configuration.maximumWaiting = 2
        let queue = SpanQueue()
        let transfer = try TransferClient(configuration: configuration, logger: logger)
        InstrumentationSystem.bootstrap(SpanTracer(queue: queue))
        return SpanExport(
            queue: queue, endpoint: settings.endpoint, headers: settings.headers,
            service: settings.service ?? program, transfer: transfer, logger: logger)
    }
}

/// Finished spans that wait for export.
///
/// A full queue drops new spans and counts them; nothing waits.
final class SpanQueue: Sendable {
    static let capacity = 8_192

    private let spans = Mutex<[FinishedSpan]>([])
    private let dropped = Counter(label: "carillon.spans.dropped")

    init() {}

    /// Adds a span.
    func append(_ span: FinishedSpan) {
        let isTaken = self.spans.withLock { spans in
            guard spans.count < Self.capacity else { return false }
            spans.append(span)
            return true
        }
        if !isTaken { self.dropped.increment() }
    }

    /// Takes the oldest spans, at most `limit`.
    func take(_ limit: Int) -> [FinishedSpan] {
        self.spans.withLock { spans in
            let taken = Array(spans.prefix(limit))
            spans.removeFirst(taken.count)
            return taken
        }
    }
}
