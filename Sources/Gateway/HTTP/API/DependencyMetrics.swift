// Carillon · DependencyMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import CoreMetrics
import Metrics

/// Whether what the gateway stands on answers.
enum DependencyMetrics {
    static let redis = Gauge(label: "carillon.dependency.up", dimensions: [("dependency", "redis")])
    static let postgres = Gauge(label: "carillon.dependency.up", dimensions: [("dependency", "postgres")])
}
