// Carillon · EasyHandle.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl
import Core
import Glibc

/// A libcurl handle and the memory it refers to, reused for one request after the other.
///
/// Only the transfer thread uses it, callbacks included. The handle owns all that libcurl refers to
/// (headers, error text, body, and itself as context). That memory changes only while the handle is
/// outside the multi handle, and is freed after libcurl's part.
final class EasyHandle {
    /// The body memory kept between requests; a larger buffer is freed.
    private static let keptCapacity = 65_536

    let pointer: UnsafeMutableRawPointer
    private(set) var ticket: TransferTicket?
    /// The loop's round in which the request was loaded.
    private var round = 0

    private let headers = HeaderList()
    let errorText = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))
    private var requestBody = UnsafeMutableRawBufferPointer.allocate(byteCount: 1_024, alignment: 1)
    /// The length of the request's body, and how much of it libcurl has read.
    private var bodyLength = 0
    private var bodyPosition = 0
    private let ambiguousOrigins: AmbiguousOrigins
    private var method: TransferRequest.Method?
    /// The list with the addresses of the host; libcurl reads it when the transfer starts.
    private var resolution: UnsafeMutablePointer<curl_slist>?
    var response = ResponseBuffer()
    /// Whether every address of the host was refused so far; nil before the first.
    private var hasOnlyPrivateAddresses: Bool?
    /// Whether the server did not process the request, and it may no longer start.
    private var isFenced = false

    /// Returns nil if memory runs out or libcurl rejects an option.
    init?(_ configuration: TransferConfiguration, ambiguousOrigins: AmbiguousOrigins, sockets: OpenSockets) {
        guard let pointer = curl_easy_init() else { return nil }
        self.pointer = pointer
        self.ambiguousOrigins = ambiguousOrigins
        guard self.configure(configuration), self.track(sockets) else { return nil }
    }

    deinit {
        // Sound because the loop removes a handle from the multi handle before it releases it.
        curl_easy_cleanup(self.pointer)
        curl_slist_free_all(self.resolution)
        self.errorText.deallocate()
        self.requestBody.deallocate()
    }

    /// Returns the owner of libcurl's `pointer`; the loop retains all handles, so it exists.
    static func owner(of pointer: UnsafeMutableRawPointer) -> EasyHandle? {
        carillon_easy_get_private(pointer).map { Unmanaged<EasyHandle>.fromOpaque($0).takeUnretainedValue() }
    }

    // MARK: Request

    /// Prepares the handle for a request; returns the failure if the request cannot be sent.
    func load(_ ticket: TransferTicket, round: Int) -> TransferFailure? {
        let request = ticket.request
        guard self.headers.fill(request.headers) else { return TransferFailure(.invalidRequest) }
        self.response.clear(maximumBody: request.maximumResponseBytes)
        self.errorText[0] = 0
        self.hasOnlyPrivateAddresses = nil
        self.isFenced = false
        self.copyBody(request.body)

        var isSet = self.setMethod(request.method)
        isSet = isSet && self.set(CURLOPT_URL, request.url)
        isSet = isSet && self.setResolution(request.resolution)
        isSet = isSet && carillon_easy_set_list(self.pointer, CURLOPT_HTTPHEADER, self.headers.first) == CURLE_OK
        if request.method != .get {
            isSet = isSet && self.set(CURLOPT_POSTFIELDSIZE, request.body.count)
        }
        guard isSet else { return TransferFailure(.other) }
        self.ticket = ticket
        self.round = round
        return nil
    }

    /// Releases the ticket after the handle has left the multi handle.
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

    /// Copies the next part of the body for libcurl; returns 0 at its end.
    func readBody(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        let part = self.requestBody[self.bodyPosition..<self.bodyLength].prefix(buffer.count)
        buffer.copyBytes(from: part)
        self.bodyPosition += part.count
        return part.count
    }

    /// Decides whether libcurl may send the request again after it lost the connection.
    ///
    /// Only a request that the server did not process may: an HTTP/2 stream that was refused or
    /// that a GOAWAY left out (RFC 9113 sections 6.8 and 8.7). libcurl 7.88 sets an error text for
    /// other losses of a stream, except at ``AmbiguousOrigins``. All other requests fail, so that
    /// the caller decides about the retry and records it. A request that the server did not
    /// process, but that may no longer start, ends as `fenced`.
    ///
    /// Two kinds of reset still look like a refusal, so that the request is repeated: of a stream
    /// just before the server ends the connection, and of a stream during an origin's first long
    /// answer, if the origin has another open connection.
    func rewindBody() -> Bool {
        guard let ticket = self.ticket, ticket.origin.hasPrefix("https://"),
            !self.ambiguousOrigins.contains(ticket.origin), self.errorText[0] == 0
        else { return false }
        guard ticket.request.mayStart?() ?? true else {
            self.isFenced = true
            return false
        }
        self.bodyPosition = 0
        return true
    }

    private func setMethod(_ method: TransferRequest.Method) -> Bool {
        guard method != self.method else { return true }
        self.method = method
        let switched = method == .get ? self.set(CURLOPT_HTTPGET, 1) : self.set(CURLOPT_POST, 1)
        return switched && self.set(CURLOPT_CUSTOMREQUEST, method.rawValue)
    }

    /// Replaces the addresses that libcurl uses instead of its own lookup.
    private func setResolution(_ entry: String?) -> Bool {
        guard entry != nil || self.resolution != nil else { return true }
        let list = entry.flatMap { curl_slist_append(nil, $0) }
        guard list != nil || entry == nil,
            carillon_easy_set_list(self.pointer, CURLOPT_RESOLVE, list) == CURLE_OK
        else {
            curl_slist_free_all(list)
            return false
        }
        curl_slist_free_all(self.resolution)
        self.resolution = list
        return true
    }

    /// Records whether an address of the host is public.
    func recordAddress(isPublic: Bool) {
        self.hasOnlyPrivateAddresses = !isPublic && self.hasOnlyPrivateAddresses != false
    }

    // MARK: Response

    /// Takes one header line with its line break; returns false if it exceeds the limit.
    func receive(header line: UnsafeRawBufferPointer) -> Bool {
        if line.starts(with: "HTTP/1".utf8), let ticket { self.ambiguousOrigins.insert(ticket.origin) }
        return self.response.append(header: line)
    }

    /// Takes a part of the body; returns false if it exceeds the limit.
    func receive(body part: UnsafeRawBufferPointer) -> Bool {
        let isWithin = self.response.append(body: part)
        let received = self.response.headers.count + self.response.body.count
        // An answer longer than libcurl's buffer begins with a full buffer.
        if !isWithin || received >= Int(CURL_MAX_WRITE_SIZE), let ticket { self.ambiguousOrigins.insert(ticket.origin) }
        return isWithin
    }

    /// Whether any byte of the request left; valid once libcurl has worked on it.
    ///
    /// The size includes a proxy's CONNECT. The time is 0 until the connection is ready for the
    /// request, with its tunnel through the proxy.
    var wasSent: Bool {
        carillon_easy_get_long(self.pointer, CURLINFO_REQUEST_SIZE) > 0
            && carillon_easy_get_offset(self.pointer, CURLINFO_PRETRANSFER_TIME_T) > 0
    }

    /// Returns the outcome of a transfer that ended with `result`.
    func outcome(_ result: CURLcode) -> TransferOutcome {
        if self.isFenced { return .unanswered(TransferFailure(.fenced)) }
        let wasSent = self.wasSent
        if self.hasOnlyPrivateAddresses == true, result == CURLE_COULDNT_CONNECT {
            return .unanswered(TransferFailure(.privateAddress, code: Int(result.rawValue)))
        }
        let status = carillon_easy_get_long(self.pointer, CURLINFO_RESPONSE_CODE)
        // The status holds even if the body is too long or breaks off.
        guard status >= 200, result == CURLE_OK || self.response.hasAllHeaders else {
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
                isComplete: result == CURLE_OK && !self.response.isTooLarge
            ))
    }

    /// Returns the failure of a transfer that we end ourselves.
    func abandoned(_ reason: TransferFailure.Reason, round: Int) -> TransferFailure {
        // Until libcurl has worked on a request, its numbers are those of the handle's last one.
        TransferFailure(reason, mayHaveBeenSent: round != self.round && self.wasSent)
    }

    private var version: TransferResponse.Version {
        switch carillon_easy_get_long(self.pointer, CURLINFO_HTTP_VERSION) {
        case CURL_HTTP_VERSION_2_0: .http2
        case CURL_HTTP_VERSION_1_1, CURL_HTTP_VERSION_1_0: .http1
        default: .other
        }
    }
}

/// Origins at which the loss of a request does not show whether the server processed it.
///
/// These are the origins that have answered over HTTP/1, and those that have sent an answer longer
/// than libcurl's buffer: while such an answer is read, libcurl 7.88 reports a stream that the
/// server reset as a lost connection without an error text. Only the transfer thread uses this.
final class AmbiguousOrigins {
    /// At this limit every origin counts as ambiguous.
    private static let bound = 1_024

    private var origins: Set<String> = []

    func insert(_ origin: String) {
        if self.origins.count < Self.bound { self.origins.insert(origin) }
    }

    func contains(_ origin: String) -> Bool {
        self.origins.count >= Self.bound || self.origins.contains(origin)
    }
}

extension EasyHandle {
    /// Sets the options that all requests share.
    func configure(_ configuration: TransferConfiguration) -> Bool {
        let context = Unmanaged.passUnretained(self).toOpaque()
        let numbers: [(CURLoption, Int)] = [
            (CURLOPT_NOSIGNAL, 1),
            (CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS),
            // Without it a burst opens one connection a request until the first one negotiates
            // HTTP/2.
            (CURLOPT_PIPEWAIT, 1),
            (CURLOPT_CONNECTTIMEOUT_MS, max(1, configuration.connectTimeout.milliseconds)),
            // Providers recommend long-lived connections; libcurl's default closes them after two
            // idle minutes.
            (CURLOPT_MAXAGE_CONN, 900),
            (CURLOPT_MAXLIFETIME_CONN, 3_600),
            (CURLOPT_TCP_KEEPALIVE, 1),
            (CURLOPT_TCP_KEEPIDLE, 30),
            (CURLOPT_TCP_KEEPINTVL, 15),
            (CURLOPT_FOLLOWLOCATION, 0),
            (CURLOPT_UPLOAD_BUFFERSIZE, 16_384),
            // A proxy's answer to CONNECT is no answer of the origin.
            (CURLOPT_SUPPRESS_CONNECT_HEADERS, 1),
        ]
        var isSet = numbers.allSatisfy { self.set($0, $1) }
        isSet = isSet && self.set(CURLOPT_PROTOCOLS_STR, configuration.allowPlainHTTP ? "https,http" : "https")
        isSet = isSet && self.set(CURLOPT_USERAGENT, configuration.userAgent)
        if let file = configuration.caFile { isSet = isSet && self.set(CURLOPT_CAINFO, file) }
        if let proxy = configuration.proxy {
            isSet = isSet && self.set(CURLOPT_PROXY, proxy) && self.set(CURLOPT_NOPROXY, "")
        }
        if configuration.refusesPrivateAddresses {
            isSet = isSet && self.set(CURLOPT_NOPROXY, "*")
            isSet = isSet && carillon_easy_set_opensocket(self.pointer, openPublicSocket) == CURLE_OK
            isSet = isSet && self.set(CURLOPT_OPENSOCKETDATA, context)
        }
        isSet = isSet && self.set(CURLOPT_ERRORBUFFER, UnsafeMutableRawPointer(self.errorText))
        isSet = isSet && self.set(CURLOPT_PRIVATE, context)
        isSet = isSet && self.set(CURLOPT_HEADERDATA, context)
        isSet = isSet && self.set(CURLOPT_WRITEDATA, context)
        // libcurl reads the body through callbacks, so it must ask before it sends the body again.
        isSet = isSet && self.set(CURLOPT_READDATA, context)
        isSet = isSet && self.set(CURLOPT_SEEKDATA, context)
        isSet = isSet && carillon_easy_set_reader(self.pointer, supplyBody) == CURLE_OK
        isSet = isSet && carillon_easy_set_seeker(self.pointer, seekBody) == CURLE_OK
        isSet = isSet && carillon_easy_set_writer(self.pointer, CURLOPT_HEADERFUNCTION, receiveHeader) == CURLE_OK
        return isSet && carillon_easy_set_writer(self.pointer, CURLOPT_WRITEFUNCTION, receiveBody) == CURLE_OK
    }

    func set(_ option: CURLoption, _ value: Int) -> Bool {
        carillon_easy_set_long(self.pointer, option, value) == CURLE_OK
    }

    func set(_ option: CURLoption, _ value: String) -> Bool {
        carillon_easy_set_string(self.pointer, option, value) == CURLE_OK
    }

    func set(_ option: CURLoption, _ value: UnsafeMutableRawPointer?) -> Bool {
        carillon_easy_set_pointer(self.pointer, option, value) == CURLE_OK
    }
}

// libcurl calls these on the transfer thread, within `perform`. `context` is the handle itself: the
// loop keeps it for as long as libcurl knows the pointer. Returning fewer bytes than given ends the
// transfer.

/// Creates the socket for a public address; refuses any other, so that libcurl tries the next.
private nonisolated func openPublicSocket(
    _ context: UnsafeMutableRawPointer?,
    _ purpose: curlsocktype,
    _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let address else { return -1 }
    var bytes = [UInt8](repeating: 0, count: 16)
    let count = Int(carillon_copy_address(address, &bytes))
    let isPublic = PublicAddress.contains(bytes[..<count])
    if let context {
        Unmanaged<EasyHandle>.fromOpaque(context).takeUnretainedValue().recordAddress(isPublic: isPublic)
    }
    guard isPublic else { return -1 }
    return socket(address.pointee.family, address.pointee.socktype, address.pointee.protocol)
}

/// Ends a connection whose peer has acknowledged nothing for 15 s (TCP_USER_TIMEOUT, RFC 5482).
///
/// TCP alone takes a quarter of an hour. libcurl keeps a connection when a call on it times out, so
/// until then all later calls would use the dead one, a breaker's probes included.
nonisolated func limitSilence(
    _ context: UnsafeMutableRawPointer?,
    _ descriptor: curl_socket_t,
    _ purpose: curlsocktype
) -> CInt {
    var limit: CUnsignedInt = 15_000
    setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_USER_TIMEOUT, &limit, socklen_t(MemoryLayout<CUnsignedInt>.size))
    return CURL_SOCKOPT_OK
}

private nonisolated func receiveHeader(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int {
    guard let context else { return 0 }
    let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
    let handle = Unmanaged<EasyHandle>.fromOpaque(context).takeUnretainedValue()
    return handle.receive(header: line) ? line.count : 0
}

private nonisolated func receiveBody(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int {
    guard let context else { return 0 }
    let part = UnsafeRawBufferPointer(start: bytes, count: size * count)
    let handle = Unmanaged<EasyHandle>.fromOpaque(context).takeUnretainedValue()
    return handle.receive(body: part) ? part.count : 0
}

private nonisolated func supplyBody(
    _ buffer: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int {
    guard let context else { return Int(CURL_READFUNC_ABORT) }
    let handle = Unmanaged<EasyHandle>.fromOpaque(context).takeUnretainedValue()
    return handle.readBody(into: UnsafeMutableRawBufferPointer(start: buffer, count: size * count))
}

private nonisolated func seekBody(_ context: UnsafeMutableRawPointer?, _ offset: curl_off_t, _ origin: CInt) -> CInt {
    guard let context, offset == 0, origin == SEEK_SET else { return CURL_SEEKFUNC_FAIL }
    let handle = Unmanaged<EasyHandle>.fromOpaque(context).takeUnretainedValue()
    return handle.rewindBody() ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL
}

extension Duration {
    /// Whole milliseconds for libcurl, clamped to `Int32`.
    var milliseconds: Int { Int(Int32(clamping: self.inMilliseconds)) }
}
