// Carillon · PrometheusTests.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Testing

@testable import Operations

@Suite("Prometheus text", .timeLimit(.minutes(10)))
struct PrometheusTests {
    private let registry = PrometheusRegistry()

    @Test("prints nothing without measurements")
    func empty() {
        #expect(self.registry.render().isEmpty)
    }

    @Test("prints counters and gauges by name, with one type line each")
    func numbers() {
        self.registry.makeCounter(label: "carillon.jobs", dimensions: [("lane", "normal")]).increment(by: 2)
        self.registry.makeCounter(label: "carillon.jobs", dimensions: [("lane", "bulk")]).increment(by: 40)
        self.registry.makeMeter(label: "carillon.cpu", dimensions: []).set(1.5)
        self.registry.makeRecorder(label: "carillon.depth", dimensions: [], aggregate: false).record(Int64(-3))
        let meter = self.registry.makeMeter(label: "carillon.open-sockets", dimensions: [])
        meter.set(Int64(5))
        meter.increment(by: 2)
        meter.decrement(by: 3)
        #expect(
            self.registry.render() == """
                # TYPE carillon_cpu gauge
                carillon_cpu 1.5
                # TYPE carillon_depth gauge
                carillon_depth -3
                # TYPE carillon_jobs counter
                carillon_jobs{lane="bulk"} 40
                carillon_jobs{lane="normal"} 2
                # TYPE carillon_open_sockets gauge
                carillon_open_sockets 4

                """
        )
    }

    @Test("the same name and labels are the same series")
    func isShared() {
        for _ in 0..<3 { self.registry.makeCounter(label: "c", dimensions: [("a", "b")]).increment(by: 1) }
        #expect(self.registry.render() == "# TYPE c counter\nc{a=\"b\"} 3\n")
    }

    @Test(
        "escapes label values, so that each stays on its line",
        arguments: [
            (#"a"b"#, #"a\"b"#), (#"a\b"#, #"a\\b"#), ("a\nb", #"a\nb"#), ("a\r\nb", "a\r\\nb"), ("é€", "é€"), ("", ""),
        ]
    )
    func escapes(value: String, expected: String) {
        self.registry.makeCounter(label: "c", dimensions: [("l", value)]).increment(by: 1)
        #expect(self.registry.render().utf8.elementsEqual("# TYPE c counter\nc{l=\"\(expected)\"} 1\n".utf8))
    }

    @Test("histograms are cumulative, with a sum and a count")
    func histogram() {
        let timer = self.registry.makeTimer(label: "send.duration", dimensions: [("provider", "fcm")])
        timer.recordNanoseconds(500_000)
        timer.recordNanoseconds(500_001)
        timer.recordNanoseconds(3_000_000_000)
        timer.recordNanoseconds(60_000_000_000)
        let lines = self.registry.render().split(separator: "\n").map(String.init)
        #expect(lines.first == "# TYPE send_duration histogram")
        let counts = [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4]
        let bounds = [
            "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "30",
            "+Inf",
        ]
        let buckets = zip(bounds, counts).map { #"send_duration_bucket{provider="fcm",le="\#($0)"} \#($1)"# }
        #expect(Array(lines.dropFirst().prefix(16)) == buckets)
        #expect(lines.count == 19)
        let sum = lines[17].split(separator: " ").last.flatMap { Double($0) } ?? 0
        #expect(lines[17].hasPrefix(#"send_duration_sum{provider="fcm"} "#))
        #expect(abs(sum - 63.001000001) < 1e-9)
        #expect(lines[18] == #"send_duration_count{provider="fcm"} 4"#)
    }

    @Test("aggregating recorders are histograms, even without labels")
    func recorder() {
        self.registry.makeRecorder(label: "size", dimensions: [], aggregate: true).record(0.75)
        let text = self.registry.render()
        #expect(text.contains("size_bucket{le=\"0.5\"} 0\nsize_bucket{le=\"1\"} 1\n"))
        #expect(text.hasSuffix("size_sum 0.75\nsize_count 1\n"))
    }

    @Test("no increment is lost between threads")
    func threads() async {
        let counter = self.registry.makeCounter(label: "c", dimensions: [])
        await withTaskGroup { group in
            for _ in 0..<8 { group.addTask { for _ in 0..<5_000 { counter.increment(by: 1) } } }
        }
        #expect(self.registry.render() == "# TYPE c counter\nc 40000\n")
    }

    @Test("declared metrics are printed with their help, measured or not; counters without labels start at 0")
    func declared() {
        let registry = PrometheusRegistry(
            [
                MetricFamily("a_counter", .counter, "first \\ line\nsecond"),
                MetricFamily("b_counter", .counter, by: ["kind"], "by kind"),
                MetricFamily("c_gauge", .gauge, "a gauge"),
                MetricFamily("d_seen_total", .counter, "observed"),
            ],
            observe: { ["d_seen_total": 7, "e_undeclared": 0.5] }
        )
        #expect(
            registry.render() == #"""
                # HELP a_counter first \\ line\nsecond
                # TYPE a_counter counter
                a_counter 0
                # HELP b_counter by kind
                # TYPE b_counter counter
                # HELP c_gauge a gauge
                # TYPE c_gauge gauge
                # HELP d_seen_total observed
                # TYPE d_seen_total counter
                d_seen_total 7
                # TYPE e_undeclared gauge
                e_undeclared 0.5

                """#
        )
        registry.makeCounter(label: "a.counter", dimensions: []).increment(by: 2)
        registry.makeCounter(label: "b.counter", dimensions: [("kind", "x")]).increment(by: 1)
        let lines = Set(registry.render().split(separator: "\n"))
        #expect(lines.contains("a_counter 2") && lines.contains("b_counter{kind=\"x\"} 1"))
        #expect(!lines.contains("a_counter 0"))
    }

    @Test("counters start at 0 for each known value of their label")
    func known() {
        let registry = PrometheusRegistry([MetricFamily("a", .counter, by: ["kind"], values: ["x", "y"], "by kind")])
        registry.makeCounter(label: "a", dimensions: [("kind", "y")]).increment(by: 1)
        #expect(registry.render().hasSuffix("a{kind=\"x\"} 0\na{kind=\"y\"} 1\n"))
    }

    @Test("process metrics have Prometheus' names")
    func process() {
        let values = ProcessUsage().values()
        #expect(
            Set(values.keys) == Set(MetricFamily.common.map(\.name).filter { $0.hasPrefix("process_") }))
        #expect(values.values.allSatisfy { $0 > 0 })
    }
}
