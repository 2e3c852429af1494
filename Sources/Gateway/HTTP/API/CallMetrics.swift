// Carillon · CallMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import HTTPTypes
import Metrics

/// What API calls count, each made once.
enum CallMetrics {
    private static let good = Self.answered("2xx")
    private static let elsewhere = Self.answered("3xx")
    private static let refused = Self.answered("4xx")
    private static let failed = Self.answered("5xx")
    private static let duration = Timer(label: "carillon.calls.duration")

    static func count(_ status: HTTPResponse.Status, _ duration: Duration) {
        switch status.kind {
        case .serverError: Self.failed.increment()
        case .clientError: Self.refused.increment()
        case .redirection: Self.elsewhere.increment()
        default: Self.good.increment()
        }
        let parts = duration.components
        Self.duration.recordNanoseconds(parts.seconds * 1_000_000_000 + parts.attoseconds / 1_000_000_000)
    }

    private static func answered(_ result: String) -> Counter {
        Counter(label: "carillon.calls.answered", dimensions: [("class", result)])
    }
}
