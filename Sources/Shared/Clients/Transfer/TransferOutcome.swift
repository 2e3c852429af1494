// Carillon · TransferOutcome.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl
import Core

/// The end of a request.
package enum TransferOutcome: Sendable {
    /// The server answered, with any status.
    case answered(TransferResponse)
    /// No answer came; the caller decides whether to retry.
    case unanswered(TransferFailure)
}

/// The answer of a server.
package struct TransferResponse: Sendable, CustomStringConvertible {
    package enum Version: String, Sendable {
        case http1 = "1.1"
        case http2 = "2"
        case other
    }

    package let status: Int
    /// Without HTTP/2 on the server, TLS silently falls back to HTTP/1.1; APNs callers check this.
    package let version: Version
    package let body: [UInt8]
    /// False if the connection or stream broke after the headers, or if the body exceeds the
    /// caller's limit.
    ///
    /// The status is valid; the body may be cut.
    package let isComplete: Bool
    /// The raw header lines, parsed on demand since most callers want one or none.
    private let headerBlock: [UInt8]

    init(
        status: Int,
        version: Version,
        headerBlock: [UInt8],
        body: [UInt8],
        isComplete: Bool
    ) {
        self.status = status
        self.version = version
        self.headerBlock = headerBlock
        self.body = body
        self.isComplete = isComplete
    }

    /// Leaves out the headers and the body, which may name a device.
    package var description: String {
        "status \(self.status), HTTP/\(self.version.rawValue), \(self.body.count) bytes"
            + (self.isComplete ? "" : ", incomplete")
    }

    /// Returns the first field of this name, ignoring case; nil if there is none, or if it has too
    /// many combining marks in a row.
    package func header(_ name: String) -> String? {
        let name = name.utf8
        for line in self.lines where line.count > name.count {
            let colon = line.startIndex + name.count
            guard line[colon] == UInt8(ascii: ":") else { continue }
            let isSame = zip(line[..<colon], name).allSatisfy { $0.lowercasedASCII == $1.lowercasedASCII }
            guard isSame else { continue }
            let value = Self.text(line[(colon + 1)...])
            return CombiningMarks.areTooMany(in: value) ? nil : value
        }
        return nil
    }

    /// The header lines without the status line.
    private var lines: some Sequence<ArraySlice<UInt8>> {
        let isBreak = { (byte: UInt8) in byte == UInt8(ascii: "\r") || byte == UInt8(ascii: "\n") }
        // Without an array of lines, because every answer is looked through.
        return sequence(state: self.headerBlock[...]) { rest -> ArraySlice<UInt8>? in
            guard !rest.isEmpty else { return nil }
            let line = rest.prefix { !isBreak($0) }
            rest = rest[line.endIndex...].drop(while: isBreak)
            return line
        }
        .dropFirst()
    }

    private static func text(_ value: ArraySlice<UInt8>) -> String {
        let isBlank = { (byte: UInt8) in byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        let start = value.firstIndex { !isBlank($0) } ?? value.endIndex
        let end = value.lastIndex { !isBlank($0) }.map { $0 + 1 } ?? start
        return String(decoding: value[start..<end], as: UTF8.self)
    }
}

extension UInt8 {
    /// The letter in lower case; other bytes unchanged.
    var lowercasedASCII: UInt8 {
        (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(self) ? self | 0x20 : self
    }
}

/// The reason why a request has no answer.
///
/// Holds neither the URL nor a header, as either may be secret.
package struct TransferFailure: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Reason: String, Sendable, CaseIterable {
        /// The host name has no address, or its name server did not answer in time.
        case resolve
        /// No TCP connection.
        case connect
        /// All addresses of the host are private and so refused.
        case privateAddress
        /// No TLS session, or an untrusted certificate.
        case tls
        /// The deadline passed.
        case timeout
        /// Half of the time passed while the request waited in our queue.
        case noTurn
        /// Nothing was processed: the caller no longer allowed the request when its turn came.
        case fenced
        /// The connection broke, possibly one reused from an earlier request, or the server refused
        /// the stream as often as libcurl tried (RFC 9113 section 8.7).
        case connectionLost
        /// The server reset this stream after accepting it.
        case streamReset
        /// The server closes the connection and reports this stream as unprocessed (RFC 9113
        /// section 6.8). libcurl sometimes reports the same for a stream whose answer it had not
        /// read yet, so the request may have been sent.
        case goAway
        /// The caller's task was cancelled.
        case cancelled
        /// Too many requests wait already.
        case overloaded
        /// The response's headers exceed the limit.
        case responseTooLarge
        /// The caller passed a URL or a header that cannot be sent.
        case invalidRequest
        /// The client was shut down.
        case shutdown
        /// See ``TransferFailure/code``.
        case other
    }

    package let reason: Reason
    /// Whether the server may have acted on the request; false means that it certainly did not.
    package let mayHaveBeenSent: Bool
    /// libcurl's `CURLcode`; 0 if libcurl was not involved.
    package let code: Int

    /// Whether we kept the request back ourselves, which says nothing about the server.
    package var neverHadTurn: Bool { [.noTurn, .fenced, .overloaded].contains(self.reason) }

    init(_ reason: Reason, mayHaveBeenSent: Bool = false, code: Int = 0) {
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
    /// Maps libcurl's result for a transfer without a status.
    ///
    /// - Parameters:
    ///   - hasDetail: whether libcurl set an error text. It may name the host, so it is not kept.
    ///   - wasSent: whether any byte of the request left.
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
        // libcurl 7.88 sets no error text for GOAWAY, but one for every other HTTP/2 fault.
        case CURLE_HTTP2 where !hasDetail:
            .goAway
        case CURLE_HTTP2, CURLE_PARTIAL_FILE, CURLE_GOT_NOTHING, CURLE_SEND_ERROR, CURLE_RECV_ERROR,
            // libcurl wanted to resend the request, which `rewindBody` refused.
            CURLE_SEND_FAIL_REWIND:
            .connectionLost
        default:
            .other
        }
    }
}
