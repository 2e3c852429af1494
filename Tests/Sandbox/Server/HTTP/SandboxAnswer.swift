// Carillon · SandboxAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// What the server does about a request.
enum SandboxAnswer {
    /// How long after its beginning an answer breaks off, so that the beginning is read by then.
    static let breakDelay: TimeAmount = .milliseconds(100)

    case respond(SandboxResponse)
    /// Responds after a while.
    case respondLater(SandboxResponse, after: TimeAmount)
    /// Writes what there is without ending it, and breaks the stream a moment later.
    case respondInPart(SandboxResponse)
    /// Never answers; the stream stays open.
    case silence
    /// Drops the TCP connection with neither an answer nor TLS's farewell.
    case cut
    /// The same by TCP's RST, so that what is on its way to the client is lost too.
    case sever
    /// GOAWAY whose last stream is the one before this, then the connection is closed (RFC 9113 section 6.8).
    case goAway
    /// RST_STREAM with REFUSED_STREAM (RFC 9113 section 8.7).
    case refuse
    /// RST_STREAM with INTERNAL_ERROR, which says nothing of what became of the request.
    case reset
}
