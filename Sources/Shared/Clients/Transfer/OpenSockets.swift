// Carillon · OpenSockets.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl
import Glibc

/// The sockets of libcurl's connections; confined to the transfer thread.
///
/// libcurl writes the head and the body of each request apart. What a turn writes while the sockets
/// are corked (tcp(7)) leaves in full packets.
final class OpenSockets {
    /// With more sockets, each gets so few requests that corking costs more than it saves.
    private static let most = 16

    private var descriptors: [CInt] = []

    /// Runs `body` while the sockets gather what is written.
    func corked<Result>(_ body: () -> Result) -> Result {
        guard self.descriptors.count <= Self.most else { return body() }
        self.setCork(1)
        defer { self.setCork(0) }
        return body()
    }

    private func setCork(_ value: CInt) {
        var value = value
        for descriptor in self.descriptors {
            setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_CORK, &value, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    fileprivate func insert(_ descriptor: CInt) { self.descriptors.append(descriptor) }

    fileprivate func remove(_ descriptor: CInt) { self.descriptors.removeAll { $0 == descriptor } }
}

extension EasyHandle {
    /// Lets `sockets` know the sockets of the connections that this handle opens.
    ///
    /// A connection outlives the handle, so `sockets` must live until the multi handle has closed.
    func track(_ sockets: OpenSockets) -> Bool {
        let context = Unmanaged.passUnretained(sockets).toOpaque()
        return carillon_easy_set_sockopt(self.pointer, openSocket) == CURLE_OK
            && self.set(CURLOPT_SOCKOPTDATA, context)
            && carillon_easy_set_closesocket(self.pointer, closeSocket) == CURLE_OK
            && self.set(CURLOPT_CLOSESOCKETDATA, context)
    }
}

// libcurl calls these on the transfer thread. `context` is the loop's object, which outlives the
// multi handle and all its connections.

private nonisolated func openSocket(
    _ context: UnsafeMutableRawPointer?,
    _ descriptor: curl_socket_t,
    _ purpose: curlsocktype
) -> CInt {
    if let context { Unmanaged<OpenSockets>.fromOpaque(context).takeUnretainedValue().insert(descriptor) }
    return limitSilence(nil, descriptor, purpose)
}

private nonisolated func closeSocket(_ context: UnsafeMutableRawPointer?, _ descriptor: curl_socket_t) -> CInt {
    if let context { Unmanaged<OpenSockets>.fromOpaque(context).takeUnretainedValue().remove(descriptor) }
    return close(descriptor)
}
