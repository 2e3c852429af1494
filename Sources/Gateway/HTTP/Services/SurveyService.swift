// Carillon · SurveyService.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import Logging
import Metrics
import ServiceLifecycle
import Storage
import Synchronization

/// Polls Redis for queue lengths and live processes, for the gateway's metrics.
///
/// Gateways report these metrics even when no dispatcher runs.
package struct SurveyService: Service {
    private let survey: StreamSurvey
    private let connection: RedisClient
    private let now: @Sendable () -> Timestamp
    private let logger: Logger
    private let interval: Duration
    private let metrics = SurveyMetrics()

    /// - Parameter interval: the time from one poll to the next.
    package init(_ base: GatewayBase, interval: Duration) {
        self.survey = base.live.survey
        self.connection = base.live.connection
        self.now = base.now
        self.logger = base.logger
        self.interval = interval
    }

    package func run() async {
        await cancelWhenGracefulShutdown {
            var isFailing = false
            var faults: [String] = []
            while !Task.isCancelled {
                do throws(RedisError) {
                    try await self.lookAtStreams()
                    self.metrics.dispatchers.record(try await self.survey.dispatchers().count(where: \.isAlive))
                    self.metrics.gateways.record(try await self.survey.nodes().count(where: \.isAlive))
                    let found = try await self.lookAtRedis()
                    if !found.isEmpty, found != faults {
                        self.logger.warning(
                            "Redis may lose data; correct its settings",
                            metadata: ["reason": "\(found.joined(separator: "; "))"]
                        )
                    }
                    faults = found
                    isFailing = false
                } catch {
                    if !isFailing, !Task.isCancelled {
                        self.logger.warning(
                            "cannot read the state of Redis; retrying at the next interval",
                            metadata: ["error": "\(error)"])
                    }
                    isFailing = true
                }
                // Queue lengths change all the time without a signal, so poll them.
                try? await Task.sleep(for: self.interval)
            }
        }
    }

    private func lookAtStreams() async throws(RedisError) {
        let now = self.now()
        for stream in try await self.survey.streams() {
            let gauges = self.metrics.gauges(of: stream)
            gauges.length.record(stream.length)
            gauges.pending.record(stream.pending)
            gauges.lag.record(stream.lag ?? max(0, stream.length - stream.pending))
            gauges.retries.record(stream.retries)
            gauges.oldest.record(stream.waitingSince.map { max(0, (now - $0) / .seconds(1)) } ?? 0)
        }
    }

    /// Returns the faults in Redis's settings.
    private func lookAtRedis() async throws(RedisError) -> [String] {
        var batch = RedisBatch()
        batch.append("INFO", "memory")
        batch.append("INFO", "persistence")
        var used = 0.0
        var limit = 0.0
        var faults: [String] = []
        let answers = try await self.connection.sendToAll(batch)
        for answer in answers {
            let memory = Self.facts(try answer.replies[0].string())
            let persistence = Self.facts(try answer.replies[1].string())
            used += memory["used_memory"].flatMap { Double($0) } ?? 0
            limit += memory["maxmemory"].flatMap { Double($0) } ?? 0
            let place = answers.count > 1 ? "\(answer.server): " : ""
            if persistence["aof_enabled"] != "1" { faults.append(place + "appendonly is off") }
            if let policy = memory["maxmemory_policy"], policy != "noeviction" {
                faults.append("\(place)maxmemory-policy is \(policy), not noeviction")
            }
        }
        self.metrics.memory.record(used)
        self.metrics.memoryLimit.record(limit)
        self.metrics.durable.record(faults.isEmpty ? 1 : 0)
        return faults
    }

    /// Parses the lines `name:value` of an INFO reply.
    static func facts(_ text: String?) -> [String: String] {
        var facts: [String: String] = [:]
        for line in (text ?? "").split(whereSeparator: \.isNewline) {
            guard let colon = line.firstIndex(of: ":") else { continue }
            facts[String(line[..<colon])] = String(line[line.index(after: colon)...])
        }
        return facts
    }
}

/// The metrics of ``SurveyService``, each created once.
final class SurveyMetrics: Sendable {
    /// The gauges of a stream.
    struct Stream: Sendable {
        let length: Gauge
        let lag: Gauge
        let pending: Gauge
        let oldest: Gauge
        let retries: Gauge

        init(_ stream: StreamSurvey.Stream) {
            let dimensions = [
                ("stream", stream.provider?.rawValue ?? "jobs"), ("lane", stream.lane.rawValue),
            ]
            func gauge(_ name: String) -> Gauge {
                Gauge(label: "carillon.stream." + name, dimensions: dimensions)
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
    let dispatchers = Gauge(label: "carillon.dispatchers.alive")
    let gateways = Gauge(label: "carillon.gateways.alive")
    let memory = Gauge(label: "carillon.redis.memory_bytes")
    let memoryLimit = Gauge(label: "carillon.redis.memory_limit_bytes")
    /// 1 if Redis persists its data and evicts nothing.
    let durable = Gauge(label: "carillon.redis.durable")

    /// Returns the gauges of a stream, created on first use.
    func gauges(of stream: StreamSurvey.Stream) -> Stream {
        self.streams.withLock { streams in
            if let known = streams[stream.name] { return known }
            let made = Stream(stream)
            streams[stream.name] = made
            return made
        }
    }
}
