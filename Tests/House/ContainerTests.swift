// Carillon · ContainerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
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
        let lines = try House.text("deploy/docker/Dockerfile").split(separator: "\n")
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
            try House.text("deploy/docker/steps").matches(of: #/\n    ([a-z-]+)\) /#).map { String($0.output.1) }
                + ["collect"])
    }

    private static func list(_ name: String) throws -> Set<String> {
        let text = try House.text("deploy/docker/steps")
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
        let context = try House.text(".dockerignore").split(separator: "\n").filter { $0.hasPrefix("!") }
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
        #expect(try House.text(".dockerignore").split(separator: "\n").contains("*"))
    }

    @Test("the build stage copies the folder of every target that it builds")
    func targets() throws {
        #expect(try House.text("deploy/docker/steps").contains("\nexport CARILLON_BUILD=programs\n"))
        let manifest = try House.text("Package.swift")
        let list = try #require(manifest.firstMatch(of: #/let checks: Set = \[([^\]]*)\]/#)).output.1
        let excluded = Set(list.matches(of: #/"(\w+)"/#).map { String($0.output.1) })
        let copied = try Self.stages()[0].filter { $0.name == "COPY" }.flatMap { $0.words.dropLast() }
        let targets = manifest.matches(of: #/(?:room|program)\(\s*"(\w+)", in: "([^"]+)"/#)
        #expect(targets.count > excluded.count + 10)
        for target in targets where !excluded.contains(String(target.output.1)) {
            let folder = String(target.output.2)
            #expect(copied.contains { folder == $0 || folder.hasPrefix($0 + "/") }, "\(folder) is not copied")
        }
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
        // deploy/package runs this one.
        #expect(used == (try Self.functions().subtracting(["toolchain"])))
        #expect(!stages.joined().contains { $0.name == "ADD" })
    }

    @Test("a build is collected with the libraries of swiftly's toolchain, whose `swift` is a link to swiftly")
    func toolchain() async throws {
        let (text, exit) = try await House.run(
            #"""
            mkdir -p programs build toolchain/usr/lib/swift/linux toolchain/usr/libexec/swift/linux
            touch build/gateway toolchain/usr/lib/swift/linux/libswiftCore.so
            touch toolchain/usr/libexec/swift/linux/swift-backtrace-static
            cat >programs/swiftly <<'END'
            #!/bin/sh
            case $* in
                *--show-bin-path) echo "$PWD/build" ;;
                -print-target-info) echo "    \"runtimeResourcePath\": \"$PWD/toolchain/usr/lib/swift\"" ;;
            esac
            END
            cat >programs/strip <<'END'
            #!/bin/sh
            cp "$4" "$3"
            END
            cat >programs/ldd <<'END'
            #!/bin/sh
            echo "libswiftCore.so => $PWD/toolchain/usr/lib/swift/linux/libswiftCore.so (0x0)"
            echo "libc.so.6 => /lib/libc.so.6 (0x0)"
            END
            chmod +x programs/*
            ln -s swiftly programs/swift
            ln -s /bin/true programs/chrpath
            PATH=$PWD/programs:$PATH "$ROOT/deploy/docker/steps" collect out gateway
            ls out
            """#,
            libraries: [])
        #expect(exit == .code(0) && text == "gateway\nlibswiftCore.so\nswift-backtrace-static\n", "\(text)")
    }

    @Test("the image runs unprivileged, has a health check and stops on SIGTERM")
    func service() throws {
        let last = try #require(try Self.stages().last)
        func words(_ name: String) -> [String] { last.last { $0.name == name }?.words ?? [] }
        let user = try #require(words("USER").first?.split(separator: ":"))
        #expect(user.allSatisfy { (Int($0) ?? 0) >= 1_000 })
        #expect(try House.text("deploy/docker/steps").contains("USER_ID=\(user[0])\n"))
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
        let installer = try House.text("deploy/lib/install.sh")
        for package in try Self.list("BUILD_PACKAGES") {
            #expect(installer.contains("    \(package) "), "\(package)")
        }
        let runtime = try Self.list("RUNTIME_PACKAGES")
        // The package of each linked library.
        let links = [
            "pq": "libpq5", "hiredis": "libhiredis0.14", "curl": "libcurl4", "crypto": "libssl3", "ssl": "libssl3",
            "z": "zlib1g",
        ]
        var linked: Set<String> = []
        for folder in ["CCurl", "CHiredis", "CLibpq", "COpenSSL", "CLinux", "CZlib"] {
            let map = try House.text("Sources/Shared/\(folder)/module.modulemap")
            for match in map.matches(of: #/link "(\w+)"/#) { linked.insert(String(match.output.1)) }
        }
        #expect(linked == Set(links.keys))
        #expect(Set(links.values).union(["ca-certificates", "tzdata"]).isSubset(of: runtime))
    }
}

@Suite("Compose file", .timeLimit(.minutes(10)))
struct ComposeTests {
    /// Variables that an operator's `.env` must set.
    private static let secrets = [
        "AUTH_JWT_SECRET": String(repeating: "s", count: 64), "POSTGRES_PASSWORD": "p4ssword",
    ]

    private static func services() throws -> YAMLValue {
        try #require(try Deployment.documents("deploy/compose.yaml").first?["services"])
    }

    /// Substitutes the variables of a value as compose does, innermost first.
    private static func interpolated(_ text: String) -> String {
        var text = text
        let pattern = #/\$\{(\w+)(:-|:\?)?([^${}]*)\}/#
        while text.contains(pattern) {
            text.replace(pattern, maxReplacements: 1) { match in
                Self.secrets[String(match.output.1)] ?? (match.output.2 == ":-" ? String(match.output.3) : "")
            }
        }
        return text
    }

    private static func variables(_ service: String) throws -> [String: String] {
        try #require(try Self.services()[service]?["environment"]).variables.mapValues { Self.interpolated($0) }
    }

    @Test("gateway and dispatcher accept the variables that the compose file sets")
    func variables() throws {
        let known = try Deployment.knownVariables()
        for service in ["gateway", "dispatcher"] {
            let variables = try Self.variables(service)
            #expect(Set(variables.keys).subtracting(known).isEmpty)
            #expect(Deployment.faults(variables, of: service) == [])
        }
        #expect(try Self.variables("migrate")["DATABASE_URL"]?.contains("p4ssword@postgres:5432") == true)
    }

    @Test("every setting of .env reaches every service, except hosts and ports inside the containers")
    func environmentFile() throws {
        let fixed: Set<String> = ["GATEWAY_HOST", "GATEWAY_PORT", "METRICS_HOST", "METRICS_PORT"]
        for name in ["migrate", "gateway", "dispatcher"] {
            let service = try #require(try Self.services()[name])
            #expect(service["env_file"]?.array.compactMap { $0["path"]?.string } == [".env"], "\(name)")
            // Variables set in the compose file win over those in `.env`.
            for (key, value) in try #require(service["environment"]).variables where !fixed.contains(key) {
                #expect(value.hasPrefix("${\(key):"), "\(name) drops \(key)")
            }
        }
        #expect(fixed.isSubset(of: try Deployment.knownVariables()))
    }

    @Test("images have an exact version")
    func images() throws {
        for (name, service) in [
            ("redis", try Self.services()["redis"]), ("postgres", try Self.services()["postgres"]),
            ("gateway", try Self.services()["gateway"]), ("dispatcher", try Self.services()["dispatcher"]),
        ] {
            let image = Self.interpolated(try #require(service?["image"]?.string))
            #expect(image.contains(#/:\d+\.\d+(\.\d+)?(-[a-z]+)?$/#), "\(name): \(image)")
        }
    }

    @Test("only the secrets that an operator must set have no default")
    func requiredSecrets() throws {
        let known = try Deployment.knownVariables().union(Deployment.foreign)
        for match in try House.text("deploy/compose.yaml").matches(of: #/\$\{(\w+)(:-|:\?)?/#) {
            let name = String(match.output.1)
            #expect(known.contains(name), "\(name)")
            #expect((match.output.2 == ":?") == (Self.secrets[name] != nil), "\(name)")
        }
    }

    @Test("our services run unprivileged on a read-only disk and have time to drain")
    func services() throws {
        let services = try Self.services()
        for (name, drain) in [
            ("gateway", try Deployment.drain("gateway")), ("dispatcher", try Deployment.drain("dispatcher")),
        ] {
            let service = try #require(services[name])
            #expect(service["read_only"]?.bool == true)
            #expect(service["cap_drop"]?.strings == ["ALL"])
            #expect(service["security_opt"]?.strings == ["no-new-privileges:true"])
            #expect(service["command"]?.strings.first == name)
            // `unless-stopped` ends with the first `docker compose kill -s HUP`.
            #expect(service["restart"]?.string == "always")
            let grace = service["stop_grace_period"]?.string.flatMap { Int($0.dropLast()) } ?? 0
            #expect(grace > drain && grace <= drain + 30)
            #expect(service["healthcheck"]?["test"]?.strings == ["CMD", "carillon-health", "/readyz"])
            #expect(service["depends_on"]?["redis"]?["condition"]?.string == "service_healthy")
            #expect(service["depends_on"]?["migrate"]?["condition"]?.string == "service_completed_successfully")
            let build = try #require(service["build"])
            #expect(build["context"]?.string == ".." && Deployment.exists(build["dockerfile"]?.string ?? "?"))
        }
    }

    @Test("Redis persists and never evicts, and both stores keep their data in volumes")
    func stores() throws {
        let redis = try #require(try Self.services()["redis"])
        let words = redis["command"]?.strings ?? []
        func value(_ flag: String) -> String? { words.firstIndex(of: flag).map { words[$0 + 1] } }
        #expect(value("--appendonly") == "yes" && value("--maxmemory-policy") == "noeviction")
        #expect(redis["volumes"]?.strings == ["redis:/data"])
        let postgres = try #require(try Self.services()["postgres"])
        #expect(postgres["volumes"]?.strings == ["postgres:/var/lib/postgresql/data"])
        // The image's temporary first server answers at the Unix socket only.
        let check = postgres["healthcheck"]?["test"]?.strings ?? []
        #expect(check.contains("pg_isready") && check.contains("127.0.0.1"))
        for store in [redis, postgres] { #expect(store["image"]?.string?.contains(":latest") == false) }
    }
}
