// Carillon · PrometheusRegistry.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Synchronization

/// Collects the process's metrics and prints them in Prometheus' text format (version 0.0.4).
///
/// Series are never dropped, so labels must be bounded: never a user, a token or an id.
package final class PrometheusRegistry: MetricsFactory, Sendable {
    private enum Series: Sendable {
        case counter(NumberSeries)
        case gauge(NumberSeries)
        case histogram(DurationSeries)

        var kind: String {
            switch self {
            case .counter: "counter"
            case .gauge: "gauge"
            case .histogram: "histogram"
            }
        }
    }

    private struct Key: Hashable, Sendable {
        let name: String
        let labels: String
    }

    private let series = Mutex<[Key: Series]>([:])
    private let families: [String: MetricFamily]
    private let observe: @Sendable () -> [String: Double]

    /// - Parameters:
    ///   - families: metrics that are always printed, with their help texts.
    ///   - observe: returns further values by name, called on each print.
    package init(
        _ families: [MetricFamily] = [],
        observe: @escaping @Sendable () -> [String: Double] = { [:] }
    ) {
        self.families = Dictionary(families.map { ($0.name, $0) }) { first, _ in first }
        self.observe = observe
    }

    private static func key(_ label: String, _ dimensions: [(String, String)]) -> Key {
        let name = String(label.map { $0.isLetter || $0.isNumber ? $0 : "_" })
        let labels = dimensions.map { "\($0.0)=\"\(Self.escape($0.1))\"" }.joined(separator: ",")
        return Key(name: name, labels: labels)
    }

    private static func escape(_ text: String) -> String {
        var escaped = ""
        // Iterate scalars: a carriage return and a line feed form one `Character`.
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\\": escaped += "\\\\"
            case "\"": escaped += "\\\""
            case "\n": escaped += "\\n"
            default: escaped.unicodeScalars.append(scalar)
            }
        }
        return escaped
    }

    private func number(
        _ label: String,
        _ dimensions: [(String, String)],
        _ wrap: (NumberSeries) -> Series
    ) -> NumberSeries {
        self.series.withLock { series in
            let key = Self.key(label, dimensions)
            switch series[key] {
            case .counter(let known), .gauge(let known): return known
            case .histogram, nil: break
            }
            let fresh = NumberSeries()
            series[key] = wrap(fresh)
            return fresh
        }
    }

    private func histogram(_ label: String, _ dimensions: [(String, String)]) -> DurationSeries {
        self.series.withLock { series in
            let key = Self.key(label, dimensions)
            if case .histogram(let known) = series[key] { return known }
            let fresh = DurationSeries()
            series[key] = .histogram(fresh)
            return fresh
        }
    }

    package func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        self.number(label, dimensions) { .counter($0) }
    }

    package func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
        self.number(label, dimensions) { .gauge($0) }
    }

    package func makeRecorder(
        label: String,
        dimensions: [(String, String)],
        aggregate: Bool
    ) -> any RecorderHandler {
        if aggregate { return self.histogram(label, dimensions) }
        return self.number(label, dimensions) { .gauge($0) }
    }

    package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        self.histogram(label, dimensions)
    }

    package func destroyCounter(_ handler: any CounterHandler) {}
    package func destroyMeter(_ handler: any MeterHandler) {}
    package func destroyRecorder(_ handler: any RecorderHandler) {}
    package func destroyTimer(_ handler: any TimerHandler) {}

    /// Returns all metrics as text, sorted by name.
    package func render() -> String {
        var all = self.series.withLock { $0 }
        for (name, value) in self.observe() {
            let number = NumberSeries()
            number.set(value)
            all[Key(name: name, labels: "")] = self.families[name]?.kind == .counter ? .counter(number) : .gauge(number)
        }
        for family in self.families.values where family.kind == .counter {
            // Print unused counters as 0, so that the first increment is visible.
            for dimensions in family.knownDimensions {
                let key = Self.key(family.name, dimensions)
                if all[key] == nil { all[key] = .counter(NumberSeries()) }
            }
        }
        let groups = Dictionary(grouping: all) { $0.key.name }
        var text = ""
        for name in Set(groups.keys).union(self.families.keys).sorted() {
            let series = (groups[name] ?? []).sorted { $0.key.labels < $1.key.labels }
            if let family = self.families[name] { text += "# HELP \(name) \(Self.escapeHelp(family.help))\n" }
            if let kind = self.families[name]?.kind.rawValue ?? series.first?.value.kind {
                text += "# TYPE \(name) \(kind)\n"
            }
            for (key, series) in series { text += Self.render(series, key) }
        }
        return text
    }

    private static func escapeHelp(_ text: String) -> String {
        text.split(separator: "\\", omittingEmptySubsequences: false).joined(separator: "\\\\")
            .split(separator: "\n", omittingEmptySubsequences: false).joined(separator: "\\n")
    }

    private static func render(_ series: Series, _ key: Key) -> String {
        switch series {
        case .counter(let number), .gauge(let number):
            "\(Self.name(key.name, key.labels)) \(Self.format(number.value))\n"
        case .histogram(let histogram): Self.render(histogram.snapshot, key)
        }
    }

    private static func render(_ snapshot: DurationSeries.Snapshot, _ key: Key) -> String {
        var text = ""
        var running: UInt64 = 0
        let bounds = DurationSeries.bounds.map { Self.format($0) } + ["+Inf"]
        for (bound, count) in zip(bounds, snapshot.buckets) {
            running += count
            let labels = key.labels.isEmpty ? "le=\"\(bound)\"" : "\(key.labels),le=\"\(bound)\""
            text += "\(Self.name(key.name + "_bucket", labels)) \(running)\n"
        }
        text += "\(Self.name(key.name + "_sum", key.labels)) \(Self.format(snapshot.sum))\n"
        text += "\(Self.name(key.name + "_count", key.labels)) \(snapshot.count)\n"
        return text
    }

    private static func name(_ name: String, _ labels: String) -> String {
        labels.isEmpty ? name : "\(name){\(labels)}"
    }

    private static func format(_ value: Double) -> String {
        guard let whole = Int64(exactly: value) else { return String(value) }
        return String(whole)
    }
}

/// A declared metric: its name, kind, labels and help text.
///
/// A service prints every declared metric, measured or not. `docs/monitoring.md` lists the same.
package struct MetricFamily: Sendable, Equatable {
    /// The type of a metric, as Prometheus names it.
    package enum Kind: String, Sendable {
        case counter, gauge, histogram
    }

    /// The Prometheus name, with underscores.
    let name: String
    let kind: Kind
    let labels: [String]
    /// All values of the only label, if they are known.
    let values: [String]
    let help: String

    package init(
        _ name: String,
        _ kind: Kind,
        by labels: [String] = [],
        values: [String] = [],
        _ help: String
    ) {
        self.name = name
        self.kind = kind
        self.labels = labels
        self.values = values
        self.help = help
    }

    /// The labels of each series that is known before it is measured.
    fileprivate var knownDimensions: [[(String, String)]] {
        guard let label = self.labels.first else { return [[]] }
        return self.values.map { [(label, $0)] }
    }
}

extension MetricFamily {
    /// The metrics of both services.
    package static let common: [MetricFamily] = [
        MetricFamily("carillon_catalog_types", .gauge, "types in the current catalog"),
        MetricFamily(
            "carillon_catalog_refused", .gauge,
            "1 while the files of the catalog are refused and the previous catalog stays in use, else 0"),
        MetricFamily(
            "carillon_catalog_reloads", .counter, by: ["outcome"], values: ["replaced", "unchanged", "refused"],
            "replaced, unchanged, refused: reloads of the catalog, also those that a job causes"),
        MetricFamily("carillon_events_written", .counter, "events written to Redis"),
        MetricFamily("carillon_events_lost", .counter, "events that Redis refused or did not answer"),
        MetricFamily("carillon_spans_dropped", .counter, "spans dropped because 8,192 were waiting"),
        MetricFamily("carillon_spans_lost", .counter, "spans that the collector refused or did not answer"),
        MetricFamily(
            "carillon_dependency_up", .gauge, by: ["dependency"],
            "redis, postgres: 1 if it served a call within a second of this scrape, else 0"),
        MetricFamily("process_cpu_seconds_total", .counter, "CPU time of the process in seconds"),
        MetricFamily("process_resident_memory_bytes", .gauge, "resident memory of the process"),
        MetricFamily("process_open_fds", .gauge, "open file descriptors of the process; each socket is one"),
        MetricFamily("process_max_fds", .gauge, "maximum number of open file descriptors"),
        MetricFamily("process_start_time_seconds", .gauge, "start time of the process, in Unix seconds"),
    ]
}

/// A counter or a gauge: one number.
final class NumberSeries: CounterHandler, MeterHandler, RecorderHandler, Sendable {
    private let bits = Atomic<UInt64>(Double(0).bitPattern)

    var value: Double { Double(bitPattern: self.bits.load(ordering: .relaxed)) }

    private func add(_ amount: Double) {
        var current = self.bits.load(ordering: .relaxed)
        while true {
            let wanted = (Double(bitPattern: current) + amount).bitPattern
            let (isDone, actual) = self.bits.weakCompareExchange(
                expected: current,
                desired: wanted,
                ordering: .relaxed
            )
            if isDone { return }
            current = actual
        }
    }

    func increment(by amount: Int64) { self.add(Double(amount)) }
    func increment(by amount: Double) { self.add(amount) }
    func decrement(by amount: Double) { self.add(-amount) }
    func set(_ value: Int64) { self.set(Double(value)) }
    func set(_ value: Double) { self.bits.store(value.bitPattern, ordering: .relaxed) }
    func record(_ value: Int64) { self.set(Double(value)) }
    func record(_ value: Double) { self.set(value) }
    func reset() { self.set(0.0) }
}

/// A histogram of durations in seconds.
final class DurationSeries: TimerHandler, RecorderHandler, Sendable {
    /// The upper bounds of the buckets in seconds; a last bucket is unbounded.
    static let bounds: [Double] = [
        0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30,
    ]

    struct Snapshot {
        var buckets = [UInt64](repeating: 0, count: DurationSeries.bounds.count + 1)
        var sum = 0.0
        var count: UInt64 = 0
    }

    private let state = Mutex(Snapshot())

    var snapshot: Snapshot { self.state.withLock { $0 } }

    func recordNanoseconds(_ duration: Int64) { self.record(Double(duration) / 1_000_000_000) }
    func record(_ value: Int64) { self.record(Double(value)) }

    func record(_ seconds: Double) {
        let bucket = Self.bounds.firstIndex { seconds <= $0 } ?? Self.bounds.count
        self.state.withLock { state in
            state.buckets[bucket] += 1
            state.sum += seconds
            state.count += 1
        }
    }
}
