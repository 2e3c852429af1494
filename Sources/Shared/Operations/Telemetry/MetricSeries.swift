// Carillon · MetricSeries.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Synchronization

/// A counter or a gauge: one number.
final class NumberSeries: CounterHandler, FloatingPointCounterHandler, MeterHandler, RecorderHandler, Sendable {
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
    /// Upper bounds of the buckets in seconds; the last is without bound.
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
