// Carillon · ContainerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Testing

/// The Dockerfile, checked without a build.
@Suite("Container image", .timeLimit(.minutes(10)))
struct ContainerTests {
    private struct Instruction {
        let name: String
        let words: [String]
        var text: String { self.words.joined(separator: " ") }
    }

    /// The instructions by stage, in order; a stage begins with its FROM.
    private static func stages() throws -> [[Instruction]] {
        let lines = try Deployment.text("deploy/docker/Dockerfile").split(separator: "\n")
            .filter { !$0.hasPrefix("#") }.map { String($0) }
        var stages: [[Instruction]] = []
        var logical = ""
        for line in lines {
            logical += line
            if logical.hasSuffix("\\") {
                logical.removeLast()
                continue
            }
            let words = logical.split(separator: " ").map { String($0) }
            let instruction = Instruction(name: words.first ?? "", words: Array(words.dropFirst()))
            if instruction.name == "FROM" { stages.append([]) }
            try #require(!stages.isEmpty, "an instruction before the first FROM")
            stages[stages.count - 1].append(instruction)
            logical = ""
        }
        return stages
    }

    private static func functions() throws -> Set<String> {
        Set(
            try Deployment.text("deploy/docker/steps").matches(of: #/\n    ([a-z-]+)\) /#).map { String($0.output.1) }
                + ["collect"])
    }

    private static func list(_ name: String) throws -> Set<String> {
        let text = try Deployment.text("deploy/docker/steps")
        let match = try #require(
            text.firstMatch(of: try Regex("\n\(name)=\\(([^)]*)\\)", as: (Substring, Substring).self)))
        return Set(match.output.1.split(separator: " ").map { String($0) })
    }

    @Test("the Dockerfile has several stages on images with exact versions, the last one slim")
    func bases() throws {
        let bases = try Self.stages().map { $0[0].words }
        #expect(bases.count >= 2)
        for words in bases {
            let parts = words[0].split(separator: ":")
            #expect(parts.count == 2 && parts[1].contains(#/^\d+\.\d+(\.\d+)?-/#), "\(words[0])")
            #expect(words.dropFirst().first == "AS", "\(words[0]) has no name")
        }
        #expect(bases.last?.first?.hasSuffix("-slim") == true)
    }

    @Test("copied files exist and are part of the build context")
    func copies() throws {
        let context = try Deployment.text(".dockerignore").split(separator: "\n").filter { $0.hasPrefix("!") }
            .map { $0.dropFirst() }
        let stages = try Self.stages()
        let collected = stages.joined().filter { $0.name == "RUN" }.compactMap {
            $0.text.firstMatch(of: #/steps collect (\S+)/#).map { String($0.output.1) }
        }
        for copy in stages.joined() where copy.name == "COPY" {
            if copy.words.first == "--from=build" {
                #expect(copy.words.dropFirst().dropLast().elementsEqual(collected))
                continue
            }
            for source in copy.words.dropLast() {
                #expect(Deployment.exists(source), "\(source)")
                #expect(
                    context.contains { source == $0 || source.hasPrefix($0 + "/") },
                    "\(source) is not in the build context")
            }
        }
        #expect(try Deployment.text(".dockerignore").split(separator: "\n").contains("*"))
    }

    @Test("every RUN calls a step of deploy/docker/steps, and every step is used")
    func steps() throws {
        let stages = try Self.stages()
        let runs = stages.joined().filter { $0.name == "RUN" }
        var used: Set<String> = []
        for run in runs {
            for command in run.text.split(separator: " && ") {
                let words = command.split(separator: " ")
                #expect(
                    words.first?.hasSuffix("/steps") == true,
                    "\(command) is not a step, so it cannot run without an image")
                used.insert(String(words.dropFirst().first ?? ""))
            }
        }
        #expect(used == (try Self.functions()))
        #expect(!stages.joined().contains { $0.name == "ADD" })
    }

    @Test("the image runs unprivileged, has a health check and stops on SIGTERM")
    func service() throws {
        let last = try #require(try Self.stages().last)
        func words(_ name: String) -> [String] { last.last { $0.name == name }?.words ?? [] }
        let user = try #require(words("USER").first?.split(separator: ":"))
        #expect(user.allSatisfy { (Int($0) ?? 0) >= 1_000 })
        #expect(try Deployment.text("deploy/docker/steps").contains("USER_ID=\(user[0])\n"))
        #expect(words("HEALTHCHECK").contains("CMD"))
        #expect(words("HEALTHCHECK").last?.contains("/usr/local/bin/carillon-health") == true)
        #expect(words("STOPSIGNAL") == ["SIGTERM"])
        #expect(Set(words("EXPOSE")) == ["8080", "9091"])
        #expect(last.lastIndex { $0.name == "RUN" } ?? .max < last.lastIndex { $0.name == "USER" } ?? 0)
        let known = try Deployment.knownVariables().union(Deployment.foreign)
        for variable in words("ENV") {
            let name = String(variable.prefix { $0 != "=" })
            #expect(known.contains(name), "\(name)")
        }
    }

    @Test("the image installs the packages that deploy/up installs, and every linked library")
    func packages() throws {
        let installer = try Deployment.text("deploy/lib/install.sh")
        for package in try Self.list("BUILD_PACKAGES") {
            #expect(installer.contains("    \(package) "), "\(package)")
        }
        let runtime = try Self.list("RUNTIME_PACKAGES")
        // The package of each linked library.
        let links = ["pq": "libpq5", "hiredis": "libhiredis0.14", "curl": "libcurl4", "crypto": "libssl3"]
        var linked: Set<String> = []
        for folder in ["CCurl", "CHiredis", "CLibpq", "COpenSSL", "CLinux"] {
            let map = try Deployment.text("Sources/Shared/\(folder)/module.modulemap")
            for match in map.matches(of: #/link "(\w+)"/#) { linked.insert(String(match.output.1)) }
        }
        #expect(linked == Set(links.keys))
        #expect(Set(links.values).union(["ca-certificates", "tzdata"]).isSubset(of: runtime))
    }
}
