// Carillon · TransferError.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a ``TransferClient`` could not start.
package struct TransferError: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Code: String, Sendable {
        /// libcurl, or its HTTP/2, is not usable on this machine.
        case library
        /// The system has no thread to give.
        case thread
        /// A setting that libcurl refuses.
        case configuration
    }

    package let code: Code
    package let message: String
    /// File and line of who made the error.
    package let place: String

    init(_ code: Code, _ message: String, file: StaticString = #fileID, line: UInt = #line) {
        self.code = code
        self.message = message
        self.place = "\(file):\(line)"
    }

    package var description: String { "transfer \(self.code.rawValue): \(self.message) (\(self.place))" }

    package static func == (left: TransferError, right: TransferError) -> Bool {
        left.code == right.code && left.message == right.message
    }
}
