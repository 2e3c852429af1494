// Carillon · ConformanceOptions.swift
// SPDX-License-Identifier: Apache-2.0

/// What the program was told; times are milliseconds.
struct ConformanceOptions: Sendable {
    let pingInterval: Int
    let pingTimeout: Int
    let maximumPayload: Int
    let allowsRecovery: Bool
}
