// Carillon · MultiHandle.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl

/// libcurl's multi handle, which runs all transfers and owns their connections.
///
/// `@unchecked Sendable` is sound: only the transfer thread calls it, except for ``wake()``, which
/// libcurl allows from any thread while the handle exists. The mailbox calls that under its lock,
/// and never after the thread closed the mailbox.
struct MultiHandle: @unchecked Sendable {
    /// A finished transfer, copied from libcurl's message before that becomes invalid.
    struct End {
        let easy: UnsafeMutableRawPointer
        let result: CURLcode
    }

    /// Initializes libcurl once a process; false if that fails or HTTP/2 is missing.
    static let isLibraryReady: Bool = {
        guard CryptoLibrary.isReady, curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK else { return false }
        guard let version = curl_version_info(CURLVERSION_FIRST) else { return false }
        return version.pointee.features & CURL_VERSION_HTTP2 != 0
    }()

    private let pointer: UnsafeMutableRawPointer

    /// - Throws: ``TransferError`` if libcurl is unusable.
    init(_ configuration: TransferConfiguration) throws(TransferError) {
        guard Self.isLibraryReady else {
            throw TransferError(.library, "libcurl lacks HTTP/2; install a build with it")
        }
        guard let pointer = curl_multi_init() else {
            throw TransferError(.library, "libcurl could not create a multi handle")
        }
        let connections = max(1, configuration.connectionsPerHost)
        let settings: [(CURLMoption, Int)] = [
            (CURLMOPT_PIPELINING, Int(CURLPIPE_MULTIPLEX)),
            (CURLMOPT_MAX_HOST_CONNECTIONS, connections),
            (CURLMOPT_MAX_CONCURRENT_STREAMS, max(1, configuration.streamsPerConnection)),
            // The idle connections kept. libcurl's default shrinks with the number of transfers.
            (CURLMOPT_MAXCONNECTS, max(64, connections * 16)),
        ]
        for (option, value) in settings where carillon_multi_set_long(pointer, option, value) != CURLM_OK {
            curl_multi_cleanup(pointer)
            throw TransferError(.configuration, "libcurl rejected a limit")
        }
        self.pointer = pointer
    }

    func add(_ easy: UnsafeMutableRawPointer) -> Bool {
        curl_multi_add_handle(self.pointer, easy) == CURLM_OK
    }

    func remove(_ easy: UnsafeMutableRawPointer) {
        curl_multi_remove_handle(self.pointer, easy)
    }

    /// Runs all work that needs no waiting; returns false if libcurl failed.
    func perform() -> Bool {
        var running: CInt = 0
        return curl_multi_perform(self.pointer, &running) == CURLM_OK
    }

    /// Returns the next finished transfer.
    func nextEnd() -> End? {
        var left: CInt = 0
        while let message = curl_multi_info_read(self.pointer, &left) {
            guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle else { continue }
            return End(easy: easy, result: message.pointee.data.result)
        }
        return nil
    }

    /// Sleeps until a socket, a libcurl timer or ``wake()`` ends it; returns false on failure.
    func poll(milliseconds: Int) -> Bool {
        curl_multi_poll(self.pointer, nil, 0, CInt(clamping: milliseconds), nil) == CURLM_OK
    }

    func wake() {
        curl_multi_wakeup(self.pointer)
    }

    /// Closes the connections; every easy handle must have been removed.
    func close() {
        curl_multi_cleanup(self.pointer)
    }
}
