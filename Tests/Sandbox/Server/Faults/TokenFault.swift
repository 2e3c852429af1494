// Carillon · TokenFault.swift
// SPDX-License-Identifier: Apache-2.0

/// What the token endpoint does with valid requests, until it is told otherwise.
package enum TokenFault: String, Sendable, CaseIterable {
    /// 502 with a page of HTML.
    case unavailable
    /// 429.
    case limited
    /// 200 that breaks off within the token.
    case torn
    /// No answer at all.
    case silent
    /// 400 invalid_grant, as for an account whose key was taken away.
    case refused
}
