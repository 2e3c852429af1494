// Carillon · MetricFamily.swift
// SPDX-License-Identifier: Apache-2.0

/// What a metric is: its name, its kind, the labels that part it, and what it says.
///
/// A service prints all that it declares, whether or not anything was measured; `docs/operating.md` lists the same.
package struct MetricFamily: Sendable, Equatable {
    package enum Kind: String, Sendable {
        case counter, gauge, histogram
    }

    /// As Prometheus has it, with underscores.
    package let name: String
    package let kind: Kind
    package let labels: [String]
    package let help: String

    package init(_ name: String, _ kind: Kind, by labels: [String] = [], _ help: String) {
        self.name = name
        self.kind = kind
        self.labels = labels
        self.help = help
    }
}

extension MetricFamily {
    /// What both services print.
    package static let common: [MetricFamily] = [
        MetricFamily("carillon_catalog_types", .gauge, "types in force"),
        MetricFamily(
            "carillon_catalog_reloads", .counter, by: ["outcome"],
            "replaced, unchanged, refused: times that the catalog was read again"),
        MetricFamily("carillon_events_written", .counter, "events that Redis took"),
        MetricFamily("carillon_events_lost", .counter, "events that Redis did not take"),
        MetricFamily("carillon_spans_exported", .counter, "spans that the collector took"),
        MetricFamily("carillon_spans_dropped", .counter, "spans that found 8,192 waiting"),
        MetricFamily("carillon_spans_lost", .counter, "spans that the collector did not take"),
        MetricFamily(
            "carillon_dependency_up", .gauge, by: ["dependency"],
            "redis, postgres: 1 if it answered within a second when this page was asked for, else 0"),
        MetricFamily("process_cpu_seconds_total", .counter, "processor time of the process"),
        MetricFamily("process_resident_memory_bytes", .gauge, "memory of the process"),
        MetricFamily("process_open_fds", .gauge, "open files of the process; each socket is one"),
        MetricFamily("process_max_fds", .gauge, "files that the process may have open"),
        MetricFamily("process_start_time_seconds", .gauge, "when the process began, in Unix seconds"),
    ]
}
