// Carillon · NetworkFault.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import NIOCore
import NIOPosix
import NIOSSL

/// Describes network errors for operators.
///
/// The errors' own descriptions print Swift arrays, source files and line numbers.
package enum NetworkFault {
    /// Returns a short phrase such as `Connection refused`.
    package static func words(_ error: any Error) -> String {
        switch error {
        case let error as NIOConnectionError: Self.words(connecting: error)
        case let error as IOError: Self.words(error)
        case let error as SocketAddressError.UnknownHost: "\(error.host) is not a known host"
        case is SocketAddressError: "the address cannot be used"
        case let error as NIOSSLError: Self.words(error)
        case let error as BoringSSLError: Self.words(error)
        case let error as NIOSSLExtraError:
            error == .failedToValidateHostname ? "the certificate is for another host" : error.description
        case ChannelError.connectTimeout: "no answer in time"
        default: "\(error)"
        }
    }

    /// Returns the system's text for the error number.
    private static func words(_ error: IOError) -> String { String(cString: strerror(error.errnoCode)) }

    private static func words(connecting error: NIOConnectionError) -> String {
        // A host name may have several addresses, which usually fail for the same reason.
        var reasons: [String] = []
        for failure in error.connectionErrors {
            let words = Self.words(failure.error)
            if !reasons.contains(words) { reasons.append(words) }
        }
        if reasons.isEmpty { return "\(error.host) is not a known host" }
        return reasons.joined(separator: ", ")
    }

    private static func words(_ error: NIOSSLError) -> String {
        switch error {
        case .handshakeFailed(let reason): "TLS handshake failed: \(Self.words(reason))"
        case .shutdownFailed, .uncleanShutdown: "TLS connection closed without notice"
        case .failedToLoadCertificate: "no certificate in PEM"
        case .failedToLoadPrivateKey: "no private key in PEM"
        case .noSuchFilesystemObject: "no such file"
        case .noCertificateToValidate, .unableToValidateCertificate: "the certificate is not valid"
        default: Self.spaced("\(error)")
        }
    }

    private static func words(_ error: BoringSSLError) -> String {
        switch error {
        case .sslError(let stack), .unknownError(let stack), .invalidSNIName(let stack), .failedToSetALPN(let stack):
            stack.isEmpty ? "unknown error" : stack.map { Self.words($0) }.joined(separator: ", ")
        case .syscallError, .zeroReturn: "connection closed"
        default: Self.spaced("\(error)")
        }
    }

    /// Reduces `Error: 268435703 error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER
    /// at …:231` to its reason, `wrong version number`.
    private static func words(_ error: BoringSSLInternalError) -> String {
        let text = error.description
        guard let mark = text.firstRange(of: "OPENSSL_internal:") else {
            return String(text.trimmingPrefix("Error: ").drop { $0 == " " })
        }
        return text[mark.upperBound...].prefix { $0 != " " }.lowercased().replacing("_", with: " ")
    }

    /// Turns `cannotFindPeerIP` into `cannot find peer ip`.
    private static func spaced(_ name: String) -> String {
        name.prefix { $0 != "(" }.reduce(into: "") { text, letter in
            if letter.isUppercase, text.last?.isLowercase == true { text.append(" ") }
            text.append(contentsOf: letter.lowercased())
        }
    }
}
