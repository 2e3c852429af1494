// Carillon · SurveyService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import Operations
import ServiceLifecycle
import Storage
import Synchronization

/// Polls Redis for queue lengths and live processes, for the gateway's metrics.
///
/// Gateways report these metrics even when no dispatcher runs.
package struct SurveyService: Service {
    private let survey: StreamSurvey
    private let connection: RedisClient
    private let logger: Logger
    private let interval: Duration
    private let metrics: SurveyMetrics

    /// - Parameter interval: the time from one poll to the next.
    package init(
        _ base: GatewayBase,
        interval: Duration,
        metrics: any MetricsFactory = MetricsSystem.factory
    ) {
        self.survey = base.live.survey
        self.connection = base.live.connection
        self.logger = base.logger
        self.interval = interval
        self.metrics = SurveyMetrics(factory: metrics)
    }

    package func run() async {
        await cancelWhenGracefulShutdown {
            var isFailing = false
            var faults: [String] = []
            let parts: [() async throws -> Void] = [
                { self.metrics.dispatchers.record(try await self.survey.livingDispatchers()) },
                { self.metrics.gateways.record(try await self.survey.livingGateways()) },
                { faults = try await self.lookAtRedis(known: faults) },
                { try await self.lookAtStreams() },
            ]
            while !Task.isCancelled {
                var failure: (any Error)?
                // Read each part separately, so that the metrics of the others stay fresh if one
                // fails.
                for part in parts {
                    do { try await part() } catch { failure = failure ?? error }
                }
                if let failure, !isFailing, !Task.isCancelled {
                    self.logger.warning(
                        "cannot read the state of Redis; retrying at the next interval",
                        metadata: ["error": "\(failure)"])
                }
                isFailing = failure != nil
                // Queue lengths change all the time without a signal, so poll them.
                try? await Task.sleep(for: self.interval)
            }
        }
    }

    private func lookAtStreams() async throws(RedisError) {
        let streams = try await self.survey.streams()
        // Redis dates the entries; this machine's clock may differ.
        let now = try await self.survey.time()
        for stream in streams {
            let gauges = self.metrics.gauges(of: stream)
            gauges.length.record(stream.length)
            gauges.pending.record(stream.pending)
            gauges.lag.record(stream.lag ?? max(0, stream.length - stream.pending))
            gauges.retries.record(stream.retries)
            gauges.oldest.record(stream.waitingSince.map { max(0, (now - $0) / .seconds(1)) } ?? 0)
        }
    }

    /// Returns why Redis may lose data; logs that unless it is known.
    private func lookAtRedis(known: [String]) async throws(RedisError) -> [String] {
        var batch = RedisBatch()
        batch.append("INFO", "memory")
        batch.append("INFO", "persistence")
        var servers: [RedisFacts] = []
        var faults: [String] = []
        let answers = try await self.connection.sendToAll(batch)
        for answer in answers {
            let memory = try answer.replies[0].string() ?? ""
            let persistence = try answer.replies[1].string() ?? ""
            let facts = RedisFacts(info: memory + "\n" + persistence)
            servers.append(facts)
            let prefix = answers.count > 1 ? "\(answer.server): " : ""
            if !facts.usesAppendOnlyFile { faults.append(prefix + "appendonly is off") }
            if !facts.isLastWriteGood { faults.append(prefix + "the last write to disk failed") }
            if !["", "noeviction"].contains(facts.evictionPolicy) {
                faults.append("\(prefix)maxmemory-policy is \(facts.evictionPolicy), not noeviction")
            }
        }
        self.metrics.record(Self.fullest(servers), isDurable: faults.isEmpty)
        if !faults.isEmpty, faults != known {
            self.logger.warning(
                "Redis may lose data; fix the reason", metadata: ["reason": "\(faults.joined(separator: "; "))"])
        }
        return faults
    }

    /// Returns the server that uses most of its memory limit, or most memory if no limit is known.
    ///
    /// A sum over a cluster would hide a full server among empty ones.
    static func fullest(_ servers: [RedisFacts]) -> RedisFacts? {
        func share(_ server: RedisFacts) -> Double {
            server.memoryLimit.map { Double(server.usedMemory) / Double($0) } ?? 0
        }
        return servers.max { (share($0), $0.usedMemory) < (share($1), $1.usedMemory) }
    }
}

/// The metrics of ``SurveyService``.
final class SurveyMetrics: Sendable {
    /// The gauges of a stream.
    struct Stream: Sendable {
        let length: Gauge
        let lag: Gauge
        let pending: Gauge
        let oldest: Gauge
        let retries: Gauge

        init(_ stream: StreamSurvey.Stream, factory: any MetricsFactory) {
            let dimensions = [
                ("stream", stream.provider?.rawValue ?? (stream.isOverflow ? "overflow" : "jobs")),
                ("lane", stream.lane.rawValue),
            ]
            func gauge(_ name: String) -> Gauge {
                Gauge(label: "carillon.stream." + name, dimensions: dimensions, factory: factory)
            }
            self.length = gauge("length")
            self.lag = gauge("lag")
            self.pending = gauge("pending")
            self.oldest = gauge("oldest_seconds")
            self.retries = gauge("retries")
        }
    }

    // Keyed by stream; bounded by the number of providers.
    private let streams = Mutex<[String: Stream]>([:])
    private let factory: any MetricsFactory
    let dispatchers: Gauge
    let gateways: Gauge

    init(factory: any MetricsFactory) {
        self.factory = factory
        self.dispatchers = Gauge(label: "carillon.dispatchers.alive", factory: factory)
        self.gateways = Gauge(label: "carillon.gateways.alive", factory: factory)
    }

    /// Records the state of Redis, whose gauges exist only from then on.
    ///
    /// A 0 before the first answer would say that Redis loses data.
    ///
    /// - Parameter isDurable: whether Redis persists its data and evicts nothing.
    func record(_ fullest: RedisFacts?, isDurable: Bool) {
        if let fullest {
            Gauge(label: "carillon.redis.memory_bytes", factory: self.factory).record(fullest.usedMemory)
            if let limit = fullest.memoryLimit {
                Gauge(label: "carillon.redis.memory_limit_bytes", factory: self.factory).record(limit)
            }
        }
        Gauge(label: "carillon.redis.durable", factory: self.factory).record(isDurable ? 1 : 0)
    }

    /// Returns the gauges of a stream, created on first use.
    func gauges(of stream: StreamSurvey.Stream) -> Stream {
        self.streams.withLock { streams in
            if let known = streams[stream.name] { return known }
            let made = Stream(stream, factory: self.factory)
            streams[stream.name] = made
            return made
        }
    }
}
