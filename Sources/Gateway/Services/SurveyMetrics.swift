// Carillon · SurveyMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Metrics
import Model
import Streams

/// What a survey of Redis sets, each made once.
struct SurveyMetrics: Sendable {
    /// How one stream stands.
    struct Stream: Sendable {
        let length: Gauge
        let lag: Gauge
        let pending: Gauge
        let oldest: Gauge
        let retries: Gauge

        init(_ stream: String, _ lane: Lane) {
            func gauge(_ name: String) -> Gauge {
                Gauge(
                    label: "carillon.stream." + name, dimensions: [("stream", stream), ("lane", lane.rawValue)])
            }
            self.length = gauge("length")
            self.lag = gauge("lag")
            self.pending = gauge("pending")
            self.oldest = gauge("oldest_seconds")
            self.retries = gauge("retries")
        }
    }

    /// In the order of ``StreamSurvey/streams()``.
    let streams: [Stream]
    let dispatchers = Gauge(label: "carillon.dispatchers.alive")
    let gateways = Gauge(label: "carillon.gateways.alive")
    let memory = Gauge(label: "carillon.redis.memory_bytes")
    let memoryLimit = Gauge(label: "carillon.redis.memory_limit_bytes")
    /// 1 if what Redis has answered is on its disk, and nothing is evicted.
    let durable = Gauge(label: "carillon.redis.durable")

    init() {
        let names = ["jobs"] + Provider.allCases.map(\.rawValue)
        self.streams = names.flatMap { name in Lane.allCases.map { Stream(name, $0) } }
    }
}
