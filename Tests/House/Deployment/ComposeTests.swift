// Carillon · ComposeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

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
    func handedOn() throws {
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
    func questions() throws {
        let known = try Deployment.knownVariables().union(Deployment.foreign)
        for match in try Deployment.text("deploy/compose.yaml").matches(of: #/\$\{(\w+)(:-|:\?)?/#) {
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
        for store in [redis, postgres] { #expect(store["image"]?.string?.contains(":latest") == false) }
    }
}
