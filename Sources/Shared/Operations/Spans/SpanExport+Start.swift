// Carillon · SpanExport+Start.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging
import Tracing

extension SpanExport {
    /// From now on, spans of this process go to a collector; the service that brings them there is to be run.
    ///
    /// To be called once.
    package static func start(
        endpoint: String,
        headers: [(name: String, value: String)],
        service: String,
        logger: Logger
    ) throws(TransferError) -> SpanExport {
        var configuration = TransferConfiguration()
        // A collector is on this machine, or whoever runs it chose otherwise.
        configuration.allowPlainHTTP = true
        configuration.maximumInFlight = 2
        configuration.maximumWaiting = 2
        let queue = SpanQueue()
        let transfer = try TransferClient(configuration: configuration, logger: logger)
        InstrumentationSystem.bootstrap(SpanTracer(queue: queue))
        return SpanExport(
            queue: queue, endpoint: endpoint, headers: headers, service: service, transfer: transfer, logger: logger)
    }
}
