// Carillon · PrometheusRegistry.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Synchronization

/// Keeps every metric of the process and prints them in Prometheus' text format (version 0.0.4).
///
/// Series are never dropped, so dimensions must be bounded: never a user, a token or an id.
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
    ///   - families: what is printed in any case, and what is said about it.
    ///   - observe: is asked for further values, by name, whenever all are printed.
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
        // By scalar: a carriage return and a line feed are one character.
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

    package func makeFloatingPointCounter(
        label: String,
        dimensions: [(String, String)]
    ) -> any FloatingPointCounterHandler {
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
    package func destroyFloatingPointCounter(_ handler: any FloatingPointCounterHandler) {}
    package func destroyMeter(_ handler: any MeterHandler) {}
    package func destroyRecorder(_ handler: any RecorderHandler) {}
    package func destroyTimer(_ handler: any TimerHandler) {}

    /// All metrics as text, sorted by name.
    package func render() -> String {
        var all = self.series.withLock { $0 }
        for (name, value) in self.observe() {
            let number = NumberSeries()
            number.set(value)
            all[Key(name: name, labels: "")] = self.families[name]?.kind == .counter ? .counter(number) : .gauge(number)
        }
        for family in self.families.values where family.kind == .counter && family.labels.isEmpty {
            // A counter that is there from the start shows its first step.
            let key = Key(name: family.name, labels: "")
            if all[key] == nil { all[key] = .counter(NumberSeries()) }
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
