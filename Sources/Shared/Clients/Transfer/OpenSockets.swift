// Carillon · OpenSockets.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl
import Glibc

/// The sockets of libcurl's connections; confined to the transfer thread.
///
/// libcurl writes the head and the body of each request separately. While the sockets are corked
/// (tcp(7)), the data of one turn leaves in full packets.
final class OpenSockets {
    /// With more sockets, each gets so few requests that corking costs more than it saves.
    private static let corkLimit = 16

    /// Each with its inode, which tells it from a later one with the same descriptor.
    private var sockets: [(descriptor: CInt, inode: ino_t)] = []

    /// Runs `body` while the sockets gather the data that it writes.
    func corked<Result>(_ body: () -> Result) -> Result {
        guard self.sockets.count <= Self.corkLimit else { return body() }
        self.removeClosed()
        self.setCork(1)
        defer { self.setCork(0) }
        return body()
    }

    private func setCork(_ value: CInt) {
        var value = value
        for socket in self.sockets {
            setsockopt(socket.descriptor, CInt(IPPROTO_TCP), TCP_CORK, &value, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    /// Adds a socket that was just opened.
    func insert(_ descriptor: CInt) {
        self.removeClosed()
        if let inode = Self.inode(of: descriptor) { self.sockets.append((descriptor, inode)) }
    }

    /// Forgets closed sockets, whose descriptors may belong to others now.
    ///
    /// `CURLOPT_CLOSESOCKETFUNCTION` does not report all: libcurl 7.88 closes a socket that was
    /// still connecting without it.
    private func removeClosed() {
        self.sockets.removeAll { Self.inode(of: $0.descriptor) != $0.inode }
    }

    private static func inode(of descriptor: CInt) -> ino_t? {
        var status = stat()
        return fstat(descriptor, &status) == 0 ? status.st_ino : nil
    }
}

extension EasyHandle {
    /// Registers the sockets of this handle's connections in `sockets`.
    ///
    /// `sockets` must outlive the handle.
    func track(_ sockets: OpenSockets) -> Bool {
        let context = Unmanaged.passUnretained(sockets).toOpaque()
        return carillon_easy_set_sockopt(self.pointer, openSocket) == CURLE_OK
            && self.set(CURLOPT_SOCKOPTDATA, context)
    }
}

/// Adds a socket before it connects; libcurl calls this on the transfer thread.
private nonisolated func openSocket(
    _ context: UnsafeMutableRawPointer?,
    _ descriptor: curl_socket_t,
    _ purpose: curlsocktype
) -> CInt {
    if let context { Unmanaged<OpenSockets>.fromOpaque(context).takeUnretainedValue().insert(descriptor) }
    return limitSilence(nil, descriptor, purpose)
}
