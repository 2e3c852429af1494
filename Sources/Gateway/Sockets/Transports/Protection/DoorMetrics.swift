// Carillon · DoorMetrics.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics

/// What the door refuses, each made once.
enum DoorMetrics {
    /// Sockets and preflights of pages whose origin is not allowed.
    static let refusedOrigins = Self.refused("origin")
    /// Requests whose head is no HTTP or too large.
    static let refusedHeads = Self.refused("head")
    /// Bodies that are too large.
    static let refusedBodies = Self.refused("body")
    /// Sockets and streams beyond their address's share.
    static let refusedAddresses = Self.refused("address")
    /// Connections that sent more behind a request that is not answered than one may.
    static let refusedPipelines = Self.refused("pipeline")
    /// Bodies beyond what all connections together may have coming in.
    static let refusedMemory = Self.refused("memory")
    /// Connections closed as a request or the reading of an answer took too long.
    static let refusedSlow = Self.refused("slow")
    /// Connections beyond what the process may have open.
    static let refusedFiles = Self.refused("files")

    private static func refused(_ reason: String) -> Counter {
        Counter(label: "carillon.door.refused", dimensions: [("reason", reason)])
    }
}
