// Carillon · SourceFileTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@Suite("Source files", .timeLimit(.minutes(10)))
struct SourceFileTests {
    @Test("every Swift file begins with its name and its licence", arguments: ["Sources", "Tests"])
    func headers(folder: String) throws {
        let files = try House.swiftFiles(in: folder)
        #expect(files.count > 50)
        for file in files {
            let name = file.split(separator: "/").last ?? ""
            let lines = try House.text(file).split(separator: "\n", maxSplits: 2, omittingEmptySubsequences: false)
            #expect(lines.prefix(2) == ["// Carillon · \(name)", "// SPDX-License-Identifier: Apache-2.0"], "\(file)")
        }
    }

    @Test("no source file is longer than 800 lines")
    func lengths() throws {
        for file in try House.swiftFiles(in: "Sources") {
            let count = try House.text(file).count { $0.isNewline }
            #expect(count <= 800, "\(file) has \(count) lines")
        }
    }

    @Test("declarations are package or narrower, never public")
    func noPublic() throws {
        for file in try House.swiftFiles(in: "Sources") {
            let declarations = try House.text(file).split(separator: "\n").filter { line in
                line.contains(#/^\s*(?:@\w+\s+)*(?:public|open)\s/#)
            }
            #expect(declarations.isEmpty, "\(file)")
        }
    }
}
