// Carillon · Resumption.swift
// SPDX-License-Identifier: Apache-2.0

/// A client's wish to be told what changed after a version; it is answered also where nothing did.
struct Resumption: Sendable {
    let version: Int64
    /// Comes back with the answer, in JSON.
    let reference: [UInt8]?
}
