// Carillon · MailVerdict.swift
// SPDX-License-Identifier: Apache-2.0

/// What the relay's face does about a step of a transaction.
enum MailVerdict: Sendable, Equatable {
    case accept
    /// The good answer, late.
    case acceptLate
    /// Such as `550 5.1.1 No such user here`.
    case refuse(String)
    /// Says it and closes the connection.
    case refuseAndClose(String)
    case silence
    case cut
    /// Cuts the connection, late.
    case cutLate
}
