// Carillon · TokenFault.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a credential is not accepted, in words fit for whoever sent it; never holds a part of it.
package struct TokenFault: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Code: String, Sendable {
        /// It is not good: 401.
        case refused
        /// It may be good but must not be used like this: 403.
        case forbidden
        /// It cannot be checked now: 503.
        case unavailable
    }

    package let code: Code
    package let description: String

    package init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }

    /// A credential that is not good.
    package init(_ description: String) {
        self.init(.refused, description)
    }

    /// The HTTP status of an answer that tells it.
    package var status: Int {
        switch self.code {
        case .refused: 401
        case .forbidden: 403
        case .unavailable: 503
        }
    }
}
