// Carillon · MultiHandle.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl

/// libcurl's multi handle, which carries all transfers and their connections.
///
/// `@unchecked Sendable`: only the transfer thread calls it, but for ``wake()``, which libcurl allows from any thread as
/// long as the handle exists; the mailbox calls that under its lock and not after the thread closed it.
struct MultiHandle: @unchecked Sendable {
    /// One ended transfer, copied from libcurl's message before that becomes invalid.
    struct End {
        let easy: UnsafeMutableRawPointer
        let result: CURLcode
    }

    /// Once in a process, before anything else of libcurl's.
    static let isLibraryReady: Bool = {
        guard curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK else { return false }
        guard let version = curl_version_info(CURLVERSION_FIRST) else { return false }
        return version.pointee.features & CURL_VERSION_HTTP2 != 0
    }()

    private let pointer: UnsafeMutableRawPointer

    /// - Throws: ``TransferError`` if libcurl is not usable.
    init(_ configuration: TransferConfiguration) throws(TransferError) {
        guard Self.isLibraryReady else { throw TransferError(.library, "libcurl without HTTP/2") }
        guard let pointer = curl_multi_init() else { throw TransferError(.library, "no multi handle") }
        let connections = max(1, configuration.connectionsPerHost)
        let settings: [(CURLMoption, Int)] = [
            (CURLMOPT_PIPELINING, Int(CURLPIPE_MULTIPLEX)),
            (CURLMOPT_MAX_HOST_CONNECTIONS, connections),
            (CURLMOPT_MAX_CONCURRENT_STREAMS, max(1, configuration.streamsPerConnection)),
            // Idle ones kept; the default depends on how many transfers there are, and falls when they end.
            (CURLMOPT_MAXCONNECTS, max(64, connections * 16)),
        ]
        for (option, value) in settings where carillon_multi_set_long(pointer, option, value) != CURLM_OK {
            curl_multi_cleanup(pointer)
            throw TransferError(.configuration, "libcurl refuses a limit")
        }
        self.pointer = pointer
    }

    func add(_ easy: UnsafeMutableRawPointer) -> Bool {
        curl_multi_add_handle(self.pointer, easy) == CURLM_OK
    }

    func remove(_ easy: UnsafeMutableRawPointer) {
        curl_multi_remove_handle(self.pointer, easy)
    }

    /// Does what can be done without waiting; false if libcurl is in disorder.
    func perform() -> Bool {
        var running: CInt = 0
        return curl_multi_perform(self.pointer, &running) == CURLM_OK
    }

    /// The next transfer that ended.
    func nextEnd() -> End? {
        var left: CInt = 0
        while let message = curl_multi_info_read(self.pointer, &left) {
            guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle else { continue }
            return End(easy: easy, result: message.pointee.data.result)
        }
        return nil
    }

    /// Sleeps until a socket, a timer of libcurl's or ``wake()`` wants something; false if it cannot.
    func poll(milliseconds: Int) -> Bool {
        curl_multi_poll(self.pointer, nil, 0, CInt(clamping: milliseconds), nil) == CURLM_OK
    }

    func wake() {
        curl_multi_wakeup(self.pointer)
    }

    /// Closes the connections; all easy handles are out by then.
    func close() {
        curl_multi_cleanup(self.pointer)
    }
}
