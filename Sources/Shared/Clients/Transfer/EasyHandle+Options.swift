// Carillon · EasyHandle+Options.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl
import Glibc

extension EasyHandle {
    /// What holds for all requests.
    func configure(_ configuration: TransferConfiguration) -> Bool {
        let context = Unmanaged.passUnretained(self).toOpaque()
        let numbers: [(CURLoption, Int)] = [
            (CURLOPT_NOSIGNAL, 1),
            (CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS),
            // Without it a burst opens a connection for each request until the first one speaks HTTP/2.
            (CURLOPT_PIPEWAIT, 1),
            (CURLOPT_CONNECTTIMEOUT_MS, max(1, configuration.connectTimeout.milliseconds)),
            // Providers invite to keep a connection for long; libcurl's own limit is two minutes of idleness.
            (CURLOPT_MAXAGE_CONN, 900),
            (CURLOPT_MAXLIFETIME_CONN, 3_600),
            (CURLOPT_TCP_KEEPALIVE, 1),
            (CURLOPT_TCP_KEEPIDLE, 30),
            (CURLOPT_TCP_KEEPINTVL, 15),
            (CURLOPT_FOLLOWLOCATION, 0),
            (CURLOPT_UPLOAD_BUFFERSIZE, 16_384),
        ]
        var isSet = numbers.allSatisfy { self.set($0, $1) }
        isSet = isSet && self.set(CURLOPT_PROTOCOLS_STR, configuration.allowPlainHTTP ? "https,http" : "https")
        isSet = isSet && self.set(CURLOPT_USERAGENT, configuration.userAgent)
        if let file = configuration.caFile { isSet = isSet && self.set(CURLOPT_CAINFO, file) }
        if configuration.refusesPrivateAddresses {
            isSet = isSet && self.set(CURLOPT_NOPROXY, "*")
            isSet = isSet && carillon_easy_set_opensocket(self.pointer, openPublicSocket) == CURLE_OK
            isSet = isSet && self.set(CURLOPT_OPENSOCKETDATA, context)
        }
        isSet = isSet && self.set(CURLOPT_ERRORBUFFER, UnsafeMutableRawPointer(self.errorText))
        isSet = isSet && self.set(CURLOPT_PRIVATE, context)
        isSet = isSet && self.set(CURLOPT_HEADERDATA, context)
        isSet = isSet && self.set(CURLOPT_WRITEDATA, context)
        // The body is read part by part, and not given as a whole: libcurl then has to ask before
        // it sends it again.
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

// libcurl calls these on the transfer thread, within `perform`. `context` is the handle itself: the loop keeps it for as
// long as libcurl knows the pointer. Fewer bytes returned than given end the transfer.

/// Makes the socket for an address, or none if the address is not public: libcurl tries the next then.
private nonisolated func openPublicSocket(
    _ context: UnsafeMutableRawPointer?,
    _ purpose: curlsocktype,
    _ address: UnsafeMutablePointer<curl_sockaddr>?
) -> curl_socket_t {
    guard let address else { return -1 }
    var bytes = [UInt8](repeating: 0, count: 16)
    let count = Int(carillon_copy_address(address, &bytes))
    let isPublic = PublicAddress.contains(bytes[..<count])
    if let context { Unmanaged<EasyHandle>.fromOpaque(context).takeUnretainedValue().note(isPublic: isPublic) }
    guard isPublic else { return -1 }
    return socket(address.pointee.family, address.pointee.socktype, address.pointee.protocol)
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
    return handle.response.append(body: part) ? part.count : 0
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
