// Carillon · KubernetesTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Operations
import Testing

@Suite("Kubernetes", .timeLimit(.minutes(10)))
struct KubernetesTests {
    private static let folder = "deploy/kubernetes"

    private static func objects() throws -> [YAMLValue] {
        var objects: [YAMLValue] = []
        for file in try #require(try Deployment.documents("\(Self.folder)/kustomization.yaml").first?["resources"])
            .strings
        {
            objects += try Deployment.documents("\(Self.folder)/\(file)")
        }
        return objects
    }

    private static func object(_ kind: String, _ name: String) throws -> YAMLValue {
        let found = try Self.objects().filter {
            $0["kind"]?.string == kind && $0["metadata"]?["name"]?.string == name
        }
        try #require(found.count == 1, "\(kind) \(name)")
        return found[0]
    }

    private static func pod(_ service: String) throws -> YAMLValue {
        try #require(try Self.object("Deployment", "carillon-\(service)")["spec"]?["template"]?["spec"])
    }

    @Test("every manifest is listed in its kustomization, sets no namespace and holds no secret")
    func files() throws {
        for folder in [Self.folder, "\(Self.folder)/httproute", "\(Self.folder)/keda", "\(Self.folder)/monitoring"] {
            let listed = try #require(try Deployment.documents("\(folder)/kustomization.yaml").first?["resources"])
            let names = try FileManager.default.contentsOfDirectory(
                atPath: House.root.appending(path: folder).path)
            let files = names.filter {
                $0.hasSuffix(".yaml") && !["kustomization.yaml", "secret.example.yaml"].contains($0)
            }
            #expect(Set(listed.strings) == Set(files))
            for file in files {
                for object in try Deployment.documents("\(folder)/\(file)") {
                    for key in ["apiVersion", "kind"] { #expect(object[key]?.string != nil, "\(file)") }
                    #expect(object["metadata"]?["name"]?.string != nil, "\(file)")
                    #expect(object["metadata"]?["namespace"] == nil, "\(file)")
                    #expect(object["kind"]?.string != "Secret", "\(file)")
                }
            }
        }
    }

    @Test("gateway and dispatcher accept the settings and secrets of the manifests")
    func variables() throws {
        var variables = try #require(try Self.object("ConfigMap", "carillon-settings")["data"]).variables
        let secret = try #require(try Deployment.documents("\(Self.folder)/secret.example.yaml").first)
        #expect(secret["metadata"]?["name"]?.string == "carillon-secrets")
        variables.merge(try #require(secret["stringData"]).variables) { $1 }
        #expect(Set(variables.keys).subtracting(try Deployment.knownVariables()).isEmpty)
        for service in ["gateway", "dispatcher"] {
            let faults = Deployment.faults(variables, of: service)
            #expect(faults.count == 1 && faults.first?.hasPrefix("AUTH_JWT_SECRET ") == true, "\(service): \(faults)")
        }
        variables["AUTH_JWT_SECRET"] = Deployment.secret
        for service in ["gateway", "dispatcher"] {
            #expect(Deployment.faults(variables, of: service) == [])
            let container = try #require(try Self.pod(service)["containers"]?.array.first)
            let sources = container["envFrom"]?.array ?? []
            #expect(sources.compactMap { $0["configMapRef"]?["name"]?.string } == ["carillon-settings"])
            #expect(sources.compactMap { $0["secretRef"]?["name"]?.string } == ["carillon-secrets"])
            let mounts = container["volumeMounts"]?.array ?? []
            #expect(mounts.contains { $0["mountPath"]?.string == variables["CATALOG"] })
        }
        let types = House.root.appending(path: "\(Self.folder)/catalog").path
        #expect(try CatalogLoader.load(path: types).all.count == 2)
    }

    @Test(
        "gateway and dispatcher accept the settings of each size",
        arguments: [
            ("one", "redis://h:6379"), ("one", "redis+sentinel://h:26379/m"), ("cluster", "redis+cluster://h:6379"),
            ("fleet", "redis+cluster://h:6379"),
        ])
    func sizes(size: String, redis: String) throws {
        let component = try #require(
            try Deployment.documents("\(Self.folder)/sizes/\(size)/kustomization.yaml").first)
        #expect(component["kind"]?.string == "Component")
        var variables = try #require(try Self.object("ConfigMap", "carillon-settings")["data"]).variables
        let secret = try #require(try Deployment.documents("\(Self.folder)/secret.example.yaml").first)
        variables.merge(try #require(secret["stringData"]).variables) { $1 }
        variables["AUTH_JWT_SECRET"] = Deployment.secret
        variables["REDIS_URL"] = redis
        var deployments: Set<String> = []
        for patch in component["patches"]?.array ?? [] {
            for object in try Deployment.parse(try #require(patch["patch"]?.string)) {
                switch object["kind"]?.string {
                case "ConfigMap":
                    #expect(object["metadata"]?["name"]?.string == "carillon-settings")
                    variables.merge(try #require(object["data"]).variables) { $1 }
                case "Deployment":
                    let name = try #require(object["metadata"]?["name"]?.string)
                    deployments.insert(name)
                    // A patch of another name would add a container.
                    let container = object["spec"]?["template"]?["spec"]?["containers"]?.array.first
                    #expect(container?["name"]?.string == String(name.dropFirst("carillon-".count)))
                default: break
                }
            }
        }
        #expect(deployments.contains("carillon-dispatcher"))
        #expect(Set(variables.keys).subtracting(try Deployment.knownVariables()).isEmpty)
        for service in ["gateway", "dispatcher"] { #expect(Deployment.faults(variables, of: service) == []) }
    }

    @Test("a pod runs unprivileged, is probed and has time to drain", arguments: ["gateway", "dispatcher"])
    func pods(service: String) throws {
        let pod = try Self.pod(service)
        let container = try #require(pod["containers"]?.array.first)
        #expect(container["command"]?.strings.first == service)
        #expect(pod["automountServiceAccountToken"]?.bool == false)
        // A Service named `gateway` would set GATEWAY_PORT to a URL.
        #expect(pod["enableServiceLinks"]?.bool == false)
        #expect(pod["securityContext"]?["runAsNonRoot"]?.bool == true)
        #expect(pod["securityContext"]?["seccompProfile"]?["type"]?.string == "RuntimeDefault")
        let user = try #require(pod["securityContext"]?["runAsUser"]?.int)
        #expect(try House.text("deploy/docker/Dockerfile").contains("USER \(user):"))
        #expect(container["securityContext"]?["readOnlyRootFilesystem"]?.bool == true)
        #expect(container["securityContext"]?["allowPrivilegeEscalation"]?.bool == false)
        #expect(container["securityContext"]?["capabilities"]?["drop"]?.strings == ["ALL"])
        #expect(container["resources"]?["requests"]?.keys == ["cpu", "memory"])
        #expect(container["resources"]?["limits"]?["memory"] != nil)
        let ports = container["ports"]?.array.compactMap { $0["name"]?.string } ?? []
        for (probe, path) in [
            ("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"),
        ] {
            let request = try #require(container[probe]?["httpGet"])
            #expect(request["path"]?.string == path)
            #expect(ports.contains(request["port"]?.string ?? "?"))
        }
        let sleep = container["lifecycle"]?["preStop"]?["exec"]?["command"]?.strings.last.flatMap { Int($0) } ?? 0
        let grace = try #require(pod["terminationGracePeriodSeconds"]?.int)
        #expect(grace > sleep + (try Deployment.drain(service)))
        let spread = pod["topologySpreadConstraints"]?.array ?? []
        #expect(!spread.isEmpty)
    }

    @Test("selectors, budgets, policies and the ingress match their targets")
    func selectors() throws {
        for service in ["gateway", "dispatcher"] {
            let name = "carillon-\(service)"
            let spec = try #require(try Self.object("Deployment", name)["spec"])
            let labels = try #require(spec["template"]?["metadata"]?["labels"]).variables
            #expect(spec["selector"]?["matchLabels"]?.variables == labels)
            for kind in ["PodDisruptionBudget"] {
                let budget = try #require(try Self.object(kind, name)["spec"])
                #expect(budget["selector"]?["matchLabels"]?.variables == labels)
                #expect(budget["maxUnavailable"]?.int == 1)
            }
            let policy = try #require(try Self.object("NetworkPolicy", name)["spec"])
            #expect(policy["podSelector"]?["matchLabels"]?.variables == labels)
            for monitor in try Deployment.documents("\(Self.folder)/monitoring/podmonitor.yaml")
            where monitor["metadata"]?["name"]?.string == name {
                #expect(monitor["spec"]?["selector"]?["matchLabels"]?.variables == labels)
            }
        }
        let service = try #require(try Self.object("Service", "carillon-gateway")["spec"])
        #expect(service["selector"]?.variables == ["app.kubernetes.io/name": "carillon-gateway"])
        let annotations = try Self.object("Ingress", "carillon")["metadata"]?["annotations"]
        // An access log would have the tokens of queries.
        #expect(annotations?["nginx.ingress.kubernetes.io/enable-access-log"]?.string == "false")
        let rules = try #require(try Self.object("Ingress", "carillon")["spec"]?["rules"]).array
        let paths = rules.flatMap { $0["http"]?["paths"]?.array ?? [] }
        #expect(paths.contains { $0["path"]?.string == "/socket.io" })
        for path in paths {
            #expect(path["backend"]?["service"]?["name"]?.string == "carillon-gateway")
            let led = try #require(path["path"]?.string)
            #expect(!["/metrics", "/readyz", "/healthz"].contains { $0.hasPrefix(led) && led != "/" }, "\(led)")
            #expect(led != "/" || path["pathType"]?.string == "Exact")
        }
    }

    private static func httpRoute() throws -> YAMLValue {
        try #require(
            try Deployment.documents("\(Self.folder)/httproute/httproute.yaml").first {
                $0["kind"]?.string == "HTTPRoute"
            })
    }

    @Test("the ingress and the Gateway API route every page that the gateway serves")
    func pages() throws {
        let source = try House.text("Sources/Gateway/HTTP/Web/WebRouter.swift")
        let list = try #require(source.firstMatch(of: #/var pages: [\s\S]*?\n    \}\n/#)).output
        let pages = list.matches(of: #/\("([^"]*)", PackageResources/#).map { "/\($0.output.1)" }
        try #require(pages.count >= 5)
        let rules = try #require(try Self.object("Ingress", "carillon")["spec"]?["rules"]).array
        let ingress = rules.flatMap { $0["http"]?["paths"]?.array ?? [] }.map { path in
            (isExact: path["pathType"]?.string == "Exact", path: path["path"]?.string ?? "?")
        }
        let matches = try #require(try Self.httpRoute()["spec"]?["rules"]).array.flatMap { $0["matches"]?.array ?? [] }
        let route = matches.map { match in
            (isExact: match["path"]?["type"]?.string == "Exact", path: match["path"]?["value"]?.string ?? "?")
        }
        for page in pages + ["/web/page.css"] {
            for (file, known) in [("ingress.yaml", ingress), ("httproute.yaml", route)] {
                let isRouted = known.contains { $0.path == page || !$0.isExact && page.hasPrefix($0.path + "/") }
                #expect(isRouted, "\(file) lacks \(page)")
            }
        }
    }

    @Test("the Gateway API routes the same paths to the same service as the ingress")
    func gatewayAPI() throws {
        let route = try Self.httpRoute()
        let ingress = try #require(try Self.object("Ingress", "carillon")["spec"]?["rules"]).array
        #expect(route["spec"]?["hostnames"]?.strings == ingress.compactMap { $0["host"]?.string })
        let known = ingress.flatMap { $0["http"]?["paths"]?.array ?? [] }.map { path in
            "\(path["pathType"]?.string == "Exact" ? "Exact" : "PathPrefix") \(path["path"]?.string ?? "?")"
        }
        var paths: [String] = []
        let service = try #require(try Self.object("Service", "carillon-gateway")["spec"])
        let port = service["ports"]?.array.first?["port"]?.int
        for rule in try #require(route["spec"]?["rules"]).array {
            let matches = rule["matches"]?.array ?? []
            #expect((1...8).contains(matches.count), "older releases of the API allow eight matches")
            paths += matches.map {
                "\($0["path"]?["type"]?.string ?? "?") \($0["path"]?["value"]?.string ?? "?")"
            }
            let backends = rule["backendRefs"]?.array ?? []
            #expect(backends.map { $0["name"]?.string } == ["carillon-gateway"])
            #expect(backends.map { $0["port"]?.int } == [port])
            if matches.contains(where: { $0["path"]?["value"]?.string == "/socket.io" }) {
                #expect(rule["timeouts"]?["request"]?.string == "0s", "sockets must have no time limit")
            }
        }
        #expect(paths.sorted() == known.sorted())
    }

    @Test("pods reach DNS, the stores and the internet ports they need, but no private network")
    func egress() throws {
        let outside: [String: Set<Int>] = ["gateway": [443], "dispatcher": [25, 443, 465, 587], "migrate": []]
        for (name, ports) in outside {
            let policy = try #require(try Self.object("NetworkPolicy", "carillon-\(name)")["spec"])
            #expect(Set(policy["policyTypes"]?.strings ?? []) == ["Ingress", "Egress"])
            #expect(policy["podSelector"]?["matchLabels"]?.variables == ["app.kubernetes.io/name": "carillon-\(name)"])
            var open: Set<Int> = []
            var isNamed = false
            for rule in try #require(policy["egress"]).array {
                let numbers = Set(rule["ports"]?.array.compactMap { $0["port"]?.int } ?? [])
                let blocks = (rule["to"]?.array ?? []).compactMap { $0["ipBlock"] }
                isNamed = isNamed || numbers == [53]
                if rule["to"] == nil { #expect(numbers == [5_432, 6_379, 26_379], "\(name)") }
                for block in blocks {
                    open.formUnion(numbers)
                    let except = block["except"]?.strings ?? []
                    let isFour = block["cidr"]?.string == "0.0.0.0/0"
                    #expect(
                        except.contains(isFour ? "169.254.0.0/16" : "fe80::/10"),
                        "the cloud's metadata service must be out of reach")
                    #expect(except.contains(isFour ? "10.0.0.0/8" : "fc00::/7"))
                }
            }
            #expect(open == ports, "\(name)")
            #expect(isNamed, "\(name) cannot resolve names")
        }
    }

    @Test("neither a pod that waits for the longest migration nor the migration job is killed; a failed job has a log")
    func migrations() throws {
        let text = try House.text("Sources/Shared/Storage/Stores/Migrations.swift")
        let patience = try #require(text.firstMatch(of: #/patience: Duration = \.seconds\(([\d_]+)\)/#))
        let lockWait = try #require(Int(patience.output.1.filter { $0 != "_" }))
        let job = try #require(try Self.object("Job", "carillon-migrate")["spec"])
        let deadline = try #require(job["activeDeadlineSeconds"]?.int)
        #expect(deadline > 2 * lockWait, "the job must have time to wait for the lock and then to migrate")
        // The controller removes the pod, and so the log, of a job that passes its deadline, and at
        // the limit one that would restart.
        let retries = try #require(job["backoffLimit"]?.int)
        #expect(deadline > (retries + 1) * lockWait)
        #expect(job["template"]?["spec"]?["restartPolicy"]?.string == "Never")
        for service in ["gateway", "dispatcher"] {
            let container = try #require(try Self.pod(service)["containers"]?.array.first)
            let probe = try #require(container["startupProbe"])
            let time = (probe["periodSeconds"]?.int ?? 0) * (probe["failureThreshold"]?.int ?? 0)
            #expect(time >= deadline, "\(service)")
            let progress = try Self.object("Deployment", "carillon-\(service)")["spec"]?["progressDeadlineSeconds"]?.int
            #expect(progress ?? 600 > time, "a rollout must not fail while its pods wait for the migration")
        }
    }

    @Test("the image has an exact version")
    func image() throws {
        let images = try #require(try Deployment.documents("\(Self.folder)/kustomization.yaml").first?["images"]).array
        #expect(images.map { $0["name"]?.string } == ["carillon"])
        for image in images {
            let tag = image["newTag"]?.string ?? image["digest"]?.string ?? "none"
            #expect(tag.contains(#/^(\d+\.\d+\.\d+|sha256:[0-9a-f]{64})$/#), "\(tag)")
        }
    }

    @Test("dispatchers scale by the lag of each lane, counted once however many gateways report it")
    func scaling() throws {
        let scaler = try #require(
            try Deployment.documents("\(Self.folder)/keda/scaledobject.yaml").first {
                $0["kind"]?.string == "ScaledObject"
            })
        #expect(scaler["spec"]?["scaleTargetRef"]?["name"]?.string == "carillon-dispatcher")
        #expect(scaler["spec"]?["minReplicaCount"]?.int == 2)
        let triggers = scaler["spec"]?["triggers"]?.array ?? []
        let queries = triggers.compactMap { $0["metadata"]?["query"]?.string }
        // A gateway that does not reach Redis keeps its last readings.
        let cutOff = #" unless on (job, instance) max_over_time(carillon_dependency_up{dependency="redis"}[2m]) == 0"#
        #expect(queries.allSatisfy { $0.contains(cutOff) })
        let lanes = try queries.map { $0.replacing(cutOff, with: "") }.map { query in
            let pattern =
                #/sum\(max by \(stream, lane\) \(carillon_stream_lag\{(?:stream=~"jobs\|overflow", )?lane="(\w+)"\}\)\)/#
            return String(try #require(query.wholeMatch(of: pattern), "\(query)").output.1)
        }
        #expect(lanes == Lane.allCases.map(\.rawValue))
        for trigger in triggers {
            #expect(trigger["type"]?.string == "prometheus")
            #expect(trigger["metadata"]?["serverAddress"]?.string != nil)
            // Without a gateway's metrics the fallback applies, not a lag of 0.
            #expect(trigger["metadata"]?["ignoreNullValues"]?.string == "false")
            #expect((trigger["metadata"]?["threshold"]?.string.flatMap { Int($0) } ?? 0) > 0)
        }
    }
}
