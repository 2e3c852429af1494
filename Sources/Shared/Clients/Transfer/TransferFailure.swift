// Carillon · TransferFailure.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl

/// Why a request has no answer.
///
/// Holds neither the URL nor a header, as either may be a secret.
package struct TransferFailure: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Reason: String, Sendable, CaseIterable {
        /// The host's name has no address.
        case resolve
        /// No TCP connection.
        case connect
        /// The host's addresses are private, and the client does not connect to such.
        case privateAddress
        /// No TLS session, or a certificate that is not trusted.
        case tls
        /// The deadline passed.
        case timeout
        /// The deadline passed while the request waited in our own queue.
        case noTurn
        /// The connection broke, also one that was kept from an earlier request, or the server
        /// refused the stream as often as libcurl tried (RFC 9113 section 8.7).
        case connectionLost
        /// The server reset this stream after accepting it.
        case streamReset
        /// The server closes the connection and says that it did not get to this stream (RFC 9113 section 6.8); now and
        /// then libcurl says the same of a stream whose answer it did not read before, so that it may have been sent.
        case goAway
        /// The caller's task was cancelled.
        case cancelled
        /// As many requests as allowed are waiting already.
        case overloaded
        /// The response's headers are longer than any are.
        case responseTooLarge
        /// The URL or a header cannot be sent: a fault of the caller.
        case invalidRequest
        /// The client was shut down.
        case shutdown
        /// See ``TransferFailure/code``.
        case other
    }

    package let reason: Reason
    /// False if the server certainly did not act on the request; true means that it may have.
    package let mayHaveBeenSent: Bool
    /// libcurl's `CURLcode`; 0 if libcurl had no part in it.
    package let code: Int

    /// Whether it never left our own queue, which says nothing about the server.
    package var neverHadTurn: Bool { self.reason == .noTurn || self.reason == .overloaded }

    package init(_ reason: Reason, mayHaveBeenSent: Bool = false, code: Int = 0) {
        self.reason = reason
        self.mayHaveBeenSent = mayHaveBeenSent
        self.code = code
    }

    package var description: String {
        "transfer \(self.reason.rawValue)" + (self.code == 0 ? "" : ", curl \(self.code)")
            + (self.mayHaveBeenSent ? ", may have been sent" : ", not sent")
    }
}

extension TransferFailure {
    /// What libcurl's result means for a transfer that has no status.
    ///
    /// - Parameters:
    ///   - hasDetail: Whether libcurl had words for it. They may name the host and are not kept.
    ///   - wasSent: Whether a byte of the request left.
    init(curl result: CURLcode, hasDetail: Bool, wasSent: Bool) {
        let reason = Self.reason(result, hasDetail: hasDetail)
        self.init(reason, mayHaveBeenSent: wasSent, code: Int(result.rawValue))
    }

    private static func reason(_ result: CURLcode, hasDetail: Bool) -> Reason {
        switch result {
        case CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_RESOLVE_HOST:
            .resolve
        case CURLE_COULDNT_CONNECT:
            .connect
        case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_CERTPROBLEM,
            CURLE_SSL_CIPHER, CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS, CURLE_USE_SSL_FAILED:
            .tls
        case CURLE_OPERATION_TIMEDOUT:
            .timeout
        case CURLE_URL_MALFORMAT, CURLE_UNSUPPORTED_PROTOCOL:
            .invalidRequest
        case CURLE_HTTP2_STREAM:
            .streamReset
        // libcurl 7.88 has no word for GOAWAY, and one for every other fault of this kind.
        case CURLE_HTTP2 where !hasDetail:
            .goAway
        case CURLE_HTTP2, CURLE_PARTIAL_FILE, CURLE_GOT_NOTHING, CURLE_SEND_ERROR, CURLE_RECV_ERROR,
            // It would have sent the request again, which was not allowed.
            CURLE_SEND_FAIL_REWIND:
            .connectionLost
        default:
            .other
        }
    }
}
