// Carillon · RESPReader.swift
// SPDX-License-Identifier: Apache-2.0

import CHiredis
import NIOCore

/// A RESP2 parser around hiredis's reader that builds ``RedisReply`` values.
///
/// hiredis calls back for each element, an array's head before its elements; the callbacks record
/// them in a ``ReplyBuilder``. Not thread-safe: the connection owns it on its event loop.
package final class RESPReader {
    // hiredis moves the rest of its buffer to the front after each kilobyte; small chunks keep that
    // cheap.
    private static let chunkSize = 16 * 1024

    private let reader: UnsafeMutablePointer<redisReader>
    // Allocated once and freed with the reader, which keeps the pointer for its whole life.
    private let functions: UnsafeMutablePointer<redisReplyObjectFunctions>
    private let builder = ReplyBuilder()

    /// - Throws: `malformedReply` if memory runs out.
    package init() throws(RedisError) {
        self.functions = .allocate(capacity: 1)
        self.functions.initialize(
            to: redisReplyObjectFunctions(
                createString: respCreateString,
                createArray: respCreateArray,
                createInteger: respCreateInteger,
                createNil: respCreateNil,
                freeObject: respFreeObject
            )
        )
        guard let reader = redisReaderCreateWithFunctions(self.functions) else {
            self.functions.deallocate()
            throw RedisError(.malformedReply, "no memory for a reader")
        }
        self.reader = reader
        // Unretained is sound: the builder lives as long as this object, which frees the reader
        // first.
        reader.pointee.privdata = Unmanaged.passUnretained(self.builder).toOpaque()
    }

    deinit {
        redisReaderFree(self.reader)
        self.functions.deallocate()
    }

    /// Parses `buffer` and delivers every complete reply.
    ///
    /// - Throws: `malformedReply`; the connection is unusable after that.
    package func read(_ buffer: ByteBuffer, _ deliver: (RedisReply) -> Void) throws(RedisError) {
        var rest = buffer.readableBytesView
        while !rest.isEmpty {
            let chunk = rest.prefix(Self.chunkSize)
            rest = rest.dropFirst(chunk.count)
            let fed = chunk.withUnsafeBytes { bytes in
                redisReaderFeed(self.reader, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count)
            }
            guard fed == REDIS_OK else { throw self.failure() }
            while true {
                var object: UnsafeMutableRawPointer?
                guard redisReaderGetReply(self.reader, &object) == REDIS_OK else { throw self.failure() }
                guard object != nil else { break }
                deliver(self.builder.finish())
            }
        }
    }

    private func failure() -> RedisError {
        let text = withUnsafeBytes(of: &self.reader.pointee.errstr) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        return RedisError(.malformedReply, text)
    }
}

/// Records the elements of the current reply.
private final class ReplyBuilder {
    /// Replies of up to this many elements and bytes are copied, which costs less than to grow new
    /// arrays for the next.
    ///
    /// A longer reply takes the arrays along.
    private static let copyLimit = 1_024

    // Unchecked is sound: all accesses run on one event loop, and each ends before the next begins,
    // because the methods call nothing that could call back. Checks would run for every element.
    @exclusivity(unchecked) private var nodes: [RedisArray.Node] = []
    @exclusivity(unchecked) private var text: [UInt8] = []

    func append(_ kind: RedisArray.Node.Kind, value: Int64 = 0, count: Int = 0) -> UnsafeMutableRawPointer? {
        // Reserves nothing for an array's elements, which have not arrived.
        self.nodes.append(RedisArray.Node(kind: kind, value: value, count: count))
        // hiredis only checks that the object is not null.
        return UnsafeMutableRawPointer(bitPattern: self.nodes.count)
    }

    func append(_ kind: RedisArray.Node.Kind, text: UnsafeRawBufferPointer) -> UnsafeMutableRawPointer? {
        let start = self.text.count
        self.text.append(contentsOf: text)
        return self.append(kind, value: Int64(start), count: text.count)
    }

    func finish() -> RedisReply {
        defer {
            self.nodes.removeAll(keepingCapacity: true)
            self.text.removeAll(keepingCapacity: true)
        }
        guard let head = self.nodes.first else { return .null }
        switch head.kind {
        case .null: return .null
        case .integer: return .integer(head.value)
        case .status: return .status(String(decoding: self.text, as: UTF8.self))
        case .bytes where self.text.count <= Self.copyLimit:
            return .bytes(self.text.withUnsafeBufferPointer { Array($0) })
        case .bytes:
            let text = self.text
            self.text = []
            return .bytes(text)
        case .error: return .error(RedisError(reply: String(decoding: self.text, as: UTF8.self)))
        case .array where self.nodes.count <= Self.copyLimit && self.text.count <= Self.copyLimit:
            // Copies through pointers: an array made of an array shares its memory.
            return .array(
                RedisArray(
                    nodes: self.nodes.withUnsafeBufferPointer { Array($0) },
                    text: self.text.withUnsafeBufferPointer { Array($0) }))
        case .array:
            let array = RedisArray(nodes: self.nodes, text: self.text)
            self.nodes = []
            self.text = []
            return .array(array)
        }
    }
}

// The callbacks are top-level functions, so they inherit no isolation. hiredis passes a valid task
// whose `privdata` is the builder set in `RESPReader.init`, and text that is valid during the call.

private func builder(_ task: UnsafePointer<redisReadTask>?) -> ReplyBuilder? {
    guard let context = task?.pointee.privdata else { return nil }
    return Unmanaged<ReplyBuilder>.fromOpaque(context).takeUnretainedValue()
}

private func respCreateString(
    _ task: UnsafePointer<redisReadTask>?,
    _ text: UnsafeMutablePointer<CChar>?,
    _ count: Int
) -> UnsafeMutableRawPointer? {
    let kind: RedisArray.Node.Kind =
        switch task?.pointee.type {
        case REDIS_REPLY_STATUS: .status
        case REDIS_REPLY_ERROR: .error
        default: .bytes
        }
    return builder(task)?.append(kind, text: UnsafeRawBufferPointer(start: text, count: count))
}

private func respCreateArray(_ task: UnsafePointer<redisReadTask>?, _ count: CInt) -> UnsafeMutableRawPointer? {
    builder(task)?.append(.array, count: Int(count))
}

private func respCreateInteger(
    _ task: UnsafePointer<redisReadTask>?,
    _ value: CLongLong
) -> UnsafeMutableRawPointer? {
    builder(task)?.append(.integer, value: value)
}

private func respCreateNil(_ task: UnsafePointer<redisReadTask>?) -> UnsafeMutableRawPointer? {
    builder(task)?.append(.null)
}

private func respFreeObject(_ object: UnsafeMutableRawPointer?) {}
