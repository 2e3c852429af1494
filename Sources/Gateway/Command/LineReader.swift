// Carillon · LineReader.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import HTTP

/// Reads a file line by line, in pieces of bounded size.
struct LineReader {
    /// Longer lines are passed over and reported.
    private static let longestLine = 1024 * 1024

    /// Why a file cannot be read.
    struct Fault: Error, CustomStringConvertible {
        let description: String
    }

    private let descriptor: CInt
    private var buffer: [UInt8] = []
    private var start = 0
    private var isAtEnd = false

    /// - Parameter path: `-` for standard input.
    init(path: String) throws(Fault) {
        self.descriptor = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        if self.descriptor < 0 { throw Fault(description: "\(path): \(String(cString: strerror(errno)))") }
    }

    func close() {
        if self.descriptor != STDIN_FILENO { _ = Glibc.close(self.descriptor) }
    }

    /// The next line without its end; nil after the last one.
    mutating func next() throws(Fault) -> UserImport.Line? {
        var isTooLong = false
        var searched = self.start
        while true {
            if let end = self.buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                defer { self.start = end + 1 }
                return isTooLong || end - self.start > Self.longestLine
                    ? .tooLong : .text(Array(self.buffer[self.start..<end]))
            }
            if self.isAtEnd {
                guard isTooLong || self.start < self.buffer.count else { return nil }
                defer { self.start = self.buffer.count }
                return isTooLong ? .tooLong : .text(Array(self.buffer[self.start...]))
            }
            if self.buffer.count - self.start > Self.longestLine {
                isTooLong = true
                self.start = self.buffer.count
            }
            self.buffer.removeFirst(self.start)
            self.start = 0
            searched = self.buffer.count
            try self.fill()
        }
    }

    private mutating func fill() throws(Fault) {
        var piece = [UInt8](repeating: 0, count: 64 * 1024)
        // `read` writes at most `count` bytes to the array's own memory, which lives until the closure returns.
        let count = piece.withUnsafeMutableBytes { read(self.descriptor, $0.baseAddress, $0.count) }
        if count < 0 {
            if errno == EINTR { return }
            throw Fault(description: "cannot be read: \(String(cString: strerror(errno)))")
        }
        if count == 0 { self.isAtEnd = true }
        self.buffer += piece.prefix(count)
    }
}
