// Carillon · SpanExport.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import CoreMetrics
import Logging
import ServiceLifecycle

/// Hands spans to a collector by OTLP over HTTP, in batches; what it does not take is lost and counted.
package struct SpanExport: Service {
    /// Spans in one request.
    private static let largestBatch = 512
    private static let interval: Duration = .seconds(1)
    private static let timeout: Duration = .seconds(5)

    private let queue: SpanQueue
    private let url: String
    private let headers: [(name: String, value: String)]
    private let service: String
    private let transfer: TransferClient
    private let logger: Logger
    private let exported = Counter(label: "carillon.spans.exported")
    private let lost = Counter(label: "carillon.spans.lost")

    /// - Parameters:
    ///   - endpoint: the collector's base, such as `http://127.0.0.1:4318`.
    ///   - headers: sent along, such as a key.
    ///   - service: the name that the collector knows this program by.
    package init(
        queue: SpanQueue,
        endpoint: String,
        headers: [(name: String, value: String)],
        service: String,
        transfer: TransferClient,
        logger: Logger
    ) {
        self.queue = queue
        self.url = endpoint + "/v1/traces"
        self.headers = [("content-type", "application/json")] + headers
        self.service = service
        self.transfer = transfer
        self.logger = logger
    }

    package func run() async throws {
        await cancelWhenGracefulShutdown {
            // The queue fills without telling anybody, and what waits goes together.
            while (try? await Task.sleep(for: Self.interval)) != nil { await self.flush() }
        }
        // What ended while the others finished their work.
        await self.flush()
        await self.transfer.shutdown()
    }

    private func flush() async {
        // A collector that is gone is worth a line a look, not one for each batch.
        var isToldOf = false
        while true {
            let spans = self.queue.take(Self.largestBatch)
            guard !spans.isEmpty else { return }
            let request = TransferRequest(
                .post,
                url: self.url,
                headers: self.headers,
                body: SpanDocument.encode(spans, service: self.service),
                timeout: Self.timeout
            )
            switch await self.transfer.perform(request) {
            case .answered(let response) where (200..<300).contains(response.status):
                self.exported.increment(by: spans.count)
            case .answered(let response):
                self.lost.increment(by: spans.count)
                if !isToldOf {
                    self.logger.warning("spans not taken", metadata: ["http.status": "\(response.status)"])
                }
                isToldOf = true
            case .unanswered(let failure):
                self.lost.increment(by: spans.count)
                if !isToldOf { self.logger.warning("spans not taken", metadata: ["error": "\(failure)"]) }
                isToldOf = true
            }
        }
    }
}
