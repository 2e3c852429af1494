// Carillon · CompatibilityDocumentTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Testing

@testable import HTTP

/// Errors in the form of each system.
@Suite("Descriptions of compatibility paths")
struct CompatibilityDocumentTests {
    /// The target of a `$ref` to a component, or the value itself.
    private static func resolved(_ value: JSONValue?, in document: JSONValue) -> JSONValue? {
        guard let reference = value?["$ref"]?.string else { return value }
        var found: JSONValue? = document
        for part in reference.dropFirst(2).split(separator: "/") { found = found?[String(part)] }
        return found
    }

    @Test(
        "describes faulty fields with the status and members of the system",
        arguments: [ErrorStyle.hybrid, .allowance, .news, .tasks, .edge]
    )
    func errors(style: ErrorStyle) async throws {
        let problem = Problem(
            .unprocessableContent, "some fields are invalid", faults: [JobFault("token", "is missing")])
        let body = try JSONParser.parse(style.body(of: problem))
        let members = Set((body.object ?? []).map(\.key))
        #expect(members.contains("errors"))
        let document = try await DescribedDocument.compatibility.make()
        let operations = (document["paths"]?.object ?? []).flatMap { $0.value.object ?? [] }.map(\.value)
            .filter { $0["tags"]?.strings == [style.system] && $0["requestBody"] != nil }
        #expect(!operations.isEmpty)
        for operation in operations {
            let name = operation["operationId"]?.string ?? "an operation without a name"
            let response = Self.resolved(operation["responses"]?[String(style.invalid.code)], in: document)
            let content = response?["content"]?["application/problem+json"]
            let schema = try #require(Self.resolved(content?["schema"], in: document), "\(name)")
            #expect(Set((schema["properties"]?.object ?? []).map(\.key)) == members, "\(name)")
            #expect(Set(schema["required"]?.strings ?? []) == members.subtracting(["errors"]), "\(name)")
            let kind = schema["properties"]?["errors"]?["type"]?.string
            #expect(kind == (body["errors"]?.array == nil ? "object" : "array"), "\(name)")
        }
    }
}
