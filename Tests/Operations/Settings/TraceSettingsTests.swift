// Carillon · TraceSettingsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Operations
import Testing

struct TraceSettingsTests {
    @Test("There is no collector unless one is named; its headers and the service's name go with it")
    func collector() throws {
        #expect(Readings(["OTEL_SERVICE_NAME": "mine"]).gateway.common.traces == nil)
        let readings = Readings([
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example/otlp/", "OTEL_SERVICE_NAME": "mine",
            "OTEL_EXPORTER_OTLP_HEADERS": "X-Key=a=b, x-tenant=c",
        ])
        #expect(readings.gatewayFaults.isEmpty && readings.dispatcherFaults.isEmpty)
        for traces in [readings.gateway.common.traces, readings.dispatcher.common.traces] {
            let traces = try #require(traces)
            #expect(traces.endpoint == "https://collector.example/otlp")
            #expect(traces.service == "mine")
            #expect(traces.headers.map(\.name) == ["x-key", "x-tenant"])
            #expect(traces.headers.map(\.value) == ["a=b", "c"])
        }
    }

    @Test(
        "What cannot be used is named, and never repeated",
        arguments: [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://hunter2"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:hunter2@host"), ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "=hunter2"), ("OTEL_EXPORTER_OTLP_HEADERS", "a b=hunter2"),
        ]
    )
    func faults(name: String, value: String) {
        let faults = Readings([name: value]).gatewayFaults
        #expect(faults.count == 1)
        #expect(faults.first?.hasPrefix(name) == true)
        #expect(!faults.description.contains("hunter2"))
    }
}
