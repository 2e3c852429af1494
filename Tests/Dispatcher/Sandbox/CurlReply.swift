// Carillon · CurlReply.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support

/// The result of one request by the `curl` program.
struct CurlReply {
    /// curl's exit code; 0 if there was an answer.
    let exit: Int32
    let status: Int
    let headers: [String: String]
    let body: String
    /// The output of `-v` about the connection.
    let trace: String

    /// Runs curl with arguments and stops it after 10 s unless they say otherwise.
    static func get(_ arguments: [String]) async throws -> CurlReply {
        let output = try TemporaryDirectory("curl")
        defer { output.remove() }
        let head = output.file("head")
        let body = output.file("body")
        let trace = output.file("trace")
        let process = try await ChildProcess.spawn(
            "curl", ["-sv", "-m", "10", "--stderr", trace, "-D", head, "-o", body] + arguments,
            directory: output.path)
        guard case .code(let exit) = try await process.waitForExit() else {
            throw FixtureError("curl ended by a signal")
        }
        let lines = Self.text(head).split(whereSeparator: \.isNewline)
        var headers: [String: String] = [:]
        for line in lines.dropFirst() {
            let parts = line.split(separator: ": ", maxSplits: 1)
            if parts.count == 2 { headers[parts[0].lowercased()] = String(parts[1]) }
        }
        let status = lines.first?.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
        return CurlReply(
            exit: exit, status: status, headers: headers, body: Self.text(body), trace: Self.text(trace))
    }

    /// The value of a JSON body at a path of names.
    func value(_ path: String...) -> Any? {
        var value = try? JSONSerialization.jsonObject(with: Data(self.body.utf8))
        for name in path {
            value = (value as? [String: Any])?[name]
        }
        return value
    }

    private static func text(_ path: String) -> String {
        (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
    }
}
