// Carillon · SurveyMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import Metrics
import Storage
import Synchronization

/// What a survey of Redis sets, each made once.
final class SurveyMetrics: Sendable {
    /// How one stream stands.
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

    // By key. As many as there are streams of the providers that are known, and so bounded.
    private let streams = Mutex<[String: Stream]>([:])
    let dispatchers = Gauge(label: "carillon.dispatchers.alive")
    let gateways = Gauge(label: "carillon.gateways.alive")
    let memory = Gauge(label: "carillon.redis.memory_bytes")
    let memoryLimit = Gauge(label: "carillon.redis.memory_limit_bytes")
    /// 1 if what Redis has answered is on its disk, and nothing is evicted.
    let durable = Gauge(label: "carillon.redis.durable")

    /// The gauges of a stream, made when it is first seen.
    func gauges(of stream: StreamSurvey.Stream) -> Stream {
        self.streams.withLock { streams in
            if let known = streams[stream.name] { return known }
            let made = Stream(stream)
            streams[stream.name] = made
            return made
        }
    }
}
