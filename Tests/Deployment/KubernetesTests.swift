// Carillon · KubernetesTests.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import Foundation
import Model
import Streams
import Testing

/// The manifests for Kubernetes.
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

    @Test("every manifest stands in its kustomization, has no namespace, and holds no secret")
    func files() throws {
        for folder in [Self.folder, "\(Self.folder)/keda", "\(Self.folder)/monitoring"] {
            let listed = try #require(try Deployment.documents("\(folder)/kustomization.yaml").first?["resources"])
            let names = try FileManager.default.contentsOfDirectory(
                atPath: Deployment.root.appending(path: folder).path)
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

    @Test("settings and secrets are variables that the services read, without fault")
    func variables() throws {
        var variables = try #require(try Self.object("ConfigMap", "carillon-settings")["data"]).variables
        let secret = try #require(try Deployment.documents("\(Self.folder)/secret.example.yaml").first)
        #expect(secret["metadata"]?["name"]?.string == "carillon-secrets")
        variables.merge(try #require(secret["stringData"]).variables) { $1 }
        #expect(Set(variables.keys).subtracting(try Deployment.knownVariables()).isEmpty)
        for service in ["gateway", "dispatcher"] {
            #expect(Deployment.faults(variables, of: service) == [])
            let container = try #require(try Self.pod(service)["containers"]?.array.first)
            let sources = container["envFrom"]?.array ?? []
            #expect(sources.compactMap { $0["configMapRef"]?["name"]?.string } == ["carillon-settings"])
            #expect(sources.compactMap { $0["secretRef"]?["name"]?.string } == ["carillon-secrets"])
            let mounts = container["volumeMounts"]?.array ?? []
            #expect(mounts.contains { $0["mountPath"]?.string == variables["CATALOG"] })
        }
        let types = Deployment.root.appending(path: "\(Self.folder)/catalog").path
        #expect(try CatalogLoader.load(path: types).all.count == 2)
    }

    @Test("a pod is nobody's root, is probed, and has the time to end", arguments: ["gateway", "dispatcher"])
    func pods(service: String) throws {
        let pod = try Self.pod(service)
        let container = try #require(pod["containers"]?.array.first)
        #expect(container["command"]?.strings.first == service)
        #expect(pod["automountServiceAccountToken"]?.bool == false)
        #expect(pod["securityContext"]?["runAsNonRoot"]?.bool == true)
        #expect(pod["securityContext"]?["seccompProfile"]?["type"]?.string == "RuntimeDefault")
        let user = try #require(pod["securityContext"]?["runAsUser"]?.int)
        #expect(try Deployment.text("deploy/docker/Dockerfile").contains("USER \(user):"))
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

    @Test("selectors, budgets, policies and the ingress find what they are for")
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
        let rules = try #require(try Self.object("Ingress", "carillon")["spec"]?["rules"]).array
        let paths = rules.flatMap { $0["http"]?["paths"]?.array ?? [] }
        #expect(paths.contains { $0["path"]?.string == "/socket.io" })
        for path in paths {
            #expect(path["backend"]?["service"]?["name"]?.string == "carillon-gateway")
            #expect(!["/metrics", "/readyz", "/healthz"].contains(path["path"]?.string))
        }
    }

    @Test("dispatchers are scaled by the streams that there are")
    func scaling() throws {
        let scaler = try #require(
            try Deployment.documents("\(Self.folder)/keda/scaledobject.yaml").first {
                $0["kind"]?.string == "ScaledObject"
            })
        #expect(scaler["spec"]?["scaleTargetRef"]?["name"]?.string == "carillon-dispatcher")
        #expect(scaler["spec"]?["minReplicaCount"]?.int == 2)
        let keys = Keyspace()
        var streams = Set(Lane.allCases.map { keys.jobs($0) })
        for provider in Provider.wellKnown {
            for lane in [Lane.critical, .normal] { streams.insert(keys.deliveries(provider, lane)) }
        }
        let triggers = scaler["spec"]?["triggers"]?.array ?? []
        #expect(Set(triggers.compactMap { $0["metadata"]?["stream"]?.string }) == streams)
        for trigger in triggers {
            #expect(trigger["type"]?.string == "redis-streams")
            #expect(trigger["metadata"]?["consumerGroup"]?.string == Keyspace.group)
            #expect((trigger["metadata"]?["lagCount"]?.string.flatMap { Int($0) } ?? 0) > 0)
        }
    }
}
