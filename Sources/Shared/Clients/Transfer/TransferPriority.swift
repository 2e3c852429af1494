// Carillon · TransferPriority.swift
// SPDX-License-Identifier: Apache-2.0

/// What goes first of all that waits in our own queue, whoever came before.
package enum TransferPriority: Int, Sendable, CaseIterable {
    case high, normal, low
}
