// Carillon · EasyHandle.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl

/// One place for a transfer: a libcurl handle with the memory it refers to, used for one request after the other.
///
/// Belongs to the transfer thread, as does all that libcurl calls back. What libcurl refers to (headers, error text, body,
/// and this object as its context) lives in the handle, changes only while the handle is out of the multi, and is freed
/// after libcurl's part.
final class EasyHandle {
    /// Kept between requests; what a request needs beyond it is given back.
    private static let keptCapacity = 65_536

    let pointer: UnsafeMutableRawPointer
    private(set) var ticket: TransferTicket?
    private(set) var lane = 0

    private let headers = HeaderList()
    let errorText = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))
    private var requestBody = UnsafeMutableRawBufferPointer.allocate(byteCount: 1_024, alignment: 1)
    /// How much of the request's body there is, and how much of that libcurl has read.
    private var bodyLength = 0
    private var bodyPosition = 0
    private let olderOrigins: OlderOrigins
    private var method: TransferRequest.Method?
    var response = ResponseBuffer()
    /// Whether all addresses of the request's host were refused so far; nil if none was looked at.
    private var hasOnlyPrivateAddresses: Bool?

    /// Nil if there is no memory, or libcurl does not take one of the options.
    init?(_ configuration: TransferConfiguration, olderOrigins: OlderOrigins) {
        guard let pointer = curl_easy_init() else { return nil }
        self.pointer = pointer
        self.olderOrigins = olderOrigins
        guard self.configure(configuration) else { return nil }
    }

    deinit {
        // The loop takes a handle out of the multi before it lets go of it.
        curl_easy_cleanup(self.pointer)
        self.errorText.deallocate()
        self.requestBody.deallocate()
    }

    /// The handle that libcurl's `pointer` belongs to; the loop keeps all of them, so it exists.
    static func owner(of pointer: UnsafeMutableRawPointer) -> EasyHandle? {
        carillon_easy_get_private(pointer).map { Unmanaged<EasyHandle>.fromOpaque($0).takeUnretainedValue() }
    }

    // MARK: Request

    /// Makes the handle ready for the multi; nil if it is, otherwise why the request cannot be sent.
    func load(_ ticket: TransferTicket, lane: Int, remaining: Duration) -> TransferFailure? {
        let request = ticket.request
        guard self.headers.fill(request.headers) else { return TransferFailure(.invalidRequest) }
        self.response.clear(maximumBody: request.maximumResponseBytes)
        self.errorText[0] = 0
        self.hasOnlyPrivateAddresses = nil
        self.copyBody(request.body)

        var isSet = self.setMethod(request.method)
        isSet = isSet && self.set(CURLOPT_URL, request.url)
        isSet = isSet && self.set(CURLOPT_TIMEOUT_MS, max(1, remaining.milliseconds))
        isSet = isSet && carillon_easy_set_list(self.pointer, CURLOPT_HTTPHEADER, self.headers.first) == CURLE_OK
        if request.method != .get {
            isSet = isSet && self.set(CURLOPT_POSTFIELDSIZE, request.body.count)
        }
        guard isSet else { return TransferFailure(.other) }
        self.ticket = ticket
        self.lane = lane
        return nil
    }

    /// Lets go of the ticket, once the handle is out of the multi.
    func unload() -> TransferTicket? {
        defer { self.ticket = nil }
        return self.ticket
    }

    private func copyBody(_ body: [UInt8]) {
        if body.count > self.requestBody.count || self.requestBody.count > max(body.count, Self.keptCapacity) {
            self.requestBody.deallocate()
            self.requestBody = .allocate(byteCount: max(body.count, 1_024), alignment: 1)
        }
        self.requestBody.copyBytes(from: body)
        self.bodyLength = body.count
        self.bodyPosition = 0
    }

    /// Gives libcurl the next part of the body; 0 at its end.
    func readBody(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        let part = self.requestBody[self.bodyPosition..<self.bodyLength].prefix(buffer.count)
        buffer.copyBytes(from: part)
        self.bodyPosition += part.count
        return part.count
    }

    /// Whether libcurl may send the request once more; it asks when a body has left by a connection
    /// that is gone.
    ///
    /// Only what the server certainly did not look at may: a stream that HTTP/2 refused, or that a
    /// GOAWAY left out (RFC 9113 sections 6.8 and 8.7). libcurl has words for every other loss of
    /// such a connection. The rest fails, so that whoever sent it decides about the repeat and
    /// keeps record of it.
    func rewindBody() -> Bool {
        guard let origin = self.ticket?.origin, origin.hasPrefix("https://"), !self.olderOrigins.contains(origin),
            self.errorText[0] == 0
        else { return false }
        self.bodyPosition = 0
        return true
    }

    private func setMethod(_ method: TransferRequest.Method) -> Bool {
        guard method != self.method else { return true }
        self.method = method
        let switched = method == .get ? self.set(CURLOPT_HTTPGET, 1) : self.set(CURLOPT_POST, 1)
        return switched && self.set(CURLOPT_CUSTOMREQUEST, method.rawValue)
    }

    /// Takes down whether an address of the host may be connected to.
    func note(isPublic: Bool) {
        self.hasOnlyPrivateAddresses = !isPublic && self.hasOnlyPrivateAddresses != false
    }

    // MARK: Response

    /// Takes one header line with its end; false if it is one too many.
    func receive(header line: UnsafeRawBufferPointer) -> Bool {
        if line.starts(with: "HTTP/1".utf8), let ticket { self.olderOrigins.insert(ticket.origin) }
        return self.response.append(header: line)
    }

    /// What became of the transfer that libcurl ended with `result`.
    func outcome(_ result: CURLcode, now: ContinuousClock.Instant) -> TransferOutcome {
        let wasSent = carillon_easy_get_long(self.pointer, CURLINFO_REQUEST_SIZE) > 0
        if self.hasOnlyPrivateAddresses == true, result == CURLE_COULDNT_CONNECT {
            return .unanswered(TransferFailure(.privateAddress, code: Int(result.rawValue)))
        }
        let status = carillon_easy_get_long(self.pointer, CURLINFO_RESPONSE_CODE)
        // What the status says holds, however long the body is and wherever it broke off.
        guard let ticket, status >= 200, result == CURLE_OK || self.response.hasAllHeaders else {
            if self.response.isTooLarge {
                return .unanswered(
                    TransferFailure(.responseTooLarge, mayHaveBeenSent: wasSent, code: Int(result.rawValue)))
            }
            return .unanswered(
                TransferFailure(curl: result, hasDetail: self.errorText[0] != 0, wasSent: wasSent))
        }
        return .answered(
            TransferResponse(
                status: status,
                version: self.version,
                headerBlock: self.response.headers.withUnsafeBufferPointer { Array($0) },
                body: self.response.body.withUnsafeBufferPointer { Array($0) },
                isComplete: result == CURLE_OK && !self.response.isTooLarge,
                duration: ticket.start.duration(to: now)
            ))
    }

    /// Why a transfer that we end ourselves has no answer.
    func abandoned(_ reason: TransferFailure.Reason) -> TransferFailure {
        TransferFailure(reason, mayHaveBeenSent: carillon_easy_get_long(self.pointer, CURLINFO_REQUEST_SIZE) > 0)
    }

    private var version: TransferResponse.Version {
        switch carillon_easy_get_long(self.pointer, CURLINFO_HTTP_VERSION) {
        case CURL_HTTP_VERSION_2_0: .http2
        case CURL_HTTP_VERSION_1_1, CURL_HTTP_VERSION_1_0: .http1
        default: .other
        }
    }
}

/// Origins that have answered by HTTP/1.
///
/// A connection to them that is used again and dies leaves open what became of the request.
/// Belongs to the transfer thread.
final class OlderOrigins {
    /// At the bound all origins count as such.
    private static let bound = 1_024

    private var origins: Set<String> = []

    func insert(_ origin: String) {
        if self.origins.count < Self.bound { self.origins.insert(origin) }
    }

    func contains(_ origin: String) -> Bool {
        self.origins.count >= Self.bound || self.origins.contains(origin)
    }
}
