// Carillon · Stack+Developer.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import HTTP
import Sandbox
import Support

extension Stack {
    /// The checkout that the tests were built from.
    static let checkout = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../..").standardized

    /// The variables that `deploy/up` writes for a developer's own programs.
    func developerVariables(_ gateway: Gateway) async throws -> [String: String] {
        var variables = self.environment
        variables["GATEWAY_URL"] = "http://127.0.0.1:\(gateway.port)"
        variables["SANDBOX_URL"] = self.sandbox.controlURL
        variables["CARILLON_BIN"] = TestProducts.directory
        variables["CARILLON_DATA"] = self.directory.path
        variables["SERVICE_TOKEN"] = try await Self.token(user: "upstream", scope: .service)
        return variables
    }

    /// Writes variables into the file `env` of a folder, as `deploy/up` does.
    static func write(_ variables: [String: String], into folder: String) throws {
        let lines = variables.map { "export \($0.key)='\($0.value.replacing("'", with: #"'\''"#))'\n" }.sorted()
        try Data(lines.joined().utf8).write(to: URL(filePath: "\(folder)/env"))
    }

    /// Copies the example catalog with one text replaced and returns the setting that names it.
    func catalog(replacing text: String, with other: String) throws -> [String: String] {
        let source = Self.checkout.appending(path: "examples/catalog.d")
        let copy = self.directory.file("catalog.d")
        try FileManager.default.createDirectory(atPath: copy, withIntermediateDirectories: true)
        for name in try FileManager.default.contentsOfDirectory(atPath: source.path) {
            let content = try String(contentsOf: source.appending(path: name), encoding: .utf8)
            try Data(content.replacing(text, with: other).utf8).write(to: URL(filePath: "\(copy)/\(name)"))
        }
        return ["CATALOG": copy]
    }
}
