// Carillon · NotificationStatus.swift
// SPDX-License-Identifier: Apache-2.0

/// Where a notification stands.
package enum NotificationStatus: String, Sendable, CaseIterable {
    /// Stored; not yet handed on, or handed to sockets whose proof is awaited.
    case pending
    /// Handed on: a provider accepted it, or it waits in the inbox of a user who is offline.
    case sent
    /// Proven to have reached a client.
    case delivered
    case failed, expired, suppressed, deferred, cancelled
}
