// swift-tools-version: 6.2
// Carillon · Package.swift
// SPDX-License-Identifier: Apache-2.0

import PackageDescription

// MARK: Other packages

/// A product of another package, by both names.
func product(_ name: String, _ package: String) -> Target.Dependency { .product(name: name, package: package) }

let argumentParser = product("ArgumentParser", "swift-argument-parser")
let crypto = product("Crypto", "swift-crypto")
let cryptoExtras = product("_CryptoExtras", "swift-crypto")
let deque = product("DequeModule", "swift-collections")
let httpTypes = product("HTTPTypes", "swift-http-types")
let hummingbird = product("Hummingbird", "hummingbird")
let hummingbirdCore = product("HummingbirdCore", "hummingbird")
let logging = product("Logging", "swift-log")
let metrics = product("Metrics", "swift-metrics")
let coreMetrics = product("CoreMetrics", "swift-metrics")
let nioCore = product("NIOCore", "swift-nio")
let nioEmbedded = product("NIOEmbedded", "swift-nio")
let nioHTTP1 = product("NIOHTTP1", "swift-nio")
let nioHTTPTypes = product("NIOHTTPTypes", "swift-nio-extras")
let nioPosix = product("NIOPosix", "swift-nio")
let nioSSL = product("NIOSSL", "swift-nio-ssl")
let serviceLifecycle = product("ServiceLifecycle", "swift-service-lifecycle")
let tracing = product("Tracing", "swift-distributed-tracing")
let unixSignals = product("UnixSignals", "swift-service-lifecycle")
let yams = product("Yams", "Yams")

/// A product that only Linux needs, as Apple's systems have its like in Foundation.
func onLinux(_ name: String, _ package: String) -> Target.Dependency {
    .product(name: name, package: package, condition: .when(platforms: [.linux]))
}

// What is used together.
let http2 = [product("NIOHPACK", "swift-nio-http2"), product("NIOHTTP2", "swift-nio-http2")]
let nio = [logging, nioCore, nioPosix]
let service = [coreMetrics, metrics, serviceLifecycle, tracing]

// MARK: Rooms

/// A C library's module map; its headers come from the system package of this name.
func library(_ name: String, _ systemPackage: String?) -> Target {
    .systemLibrary(
        name: name,
        path: "Sources/Shared/\(name)",
        pkgConfig: name == "CLibpq" ? "libpq" : nil,
        providers: systemPackage.map { [.apt([$0])] }
    )
}

/// A room: a folder under `Sources`, or of support under `Tests`.
func room(
    _ name: String, in folder: String, _ dependencies: [Target.Dependency], embedding resources: [String] = []
) -> Target {
    .target(name: name, dependencies: dependencies, path: folder, resources: resources.map { .embedInCode($0) })
}

func program(
    _ name: String, in folder: String, _ dependencies: [Target.Dependency], excluding excluded: [String] = []
) -> Target {
    .executableTarget(name: name, dependencies: dependencies, path: folder, exclude: excluded)
}

/// The tests in `Tests/<name>`.
func tests(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .testTarget(name: "\(name)Tests", dependencies: dependencies, path: "Tests/\(name)")
}

let package = Package(
    name: "carillon",
    // Of CarillonClient; the rest is for Linux.
    platforms: [.iOS(.v17), .macOS(.v15)],
    products: [
        .library(name: "CarillonClient", targets: ["CarillonClient"]),
        .executable(name: "carillon", targets: ["CarillonCommand"]),
        .executable(name: "gateway", targets: ["GatewayCommand"]),
        .executable(name: "dispatcher", targets: ["DispatcherCommand"]),
        .executable(name: "provider-sandbox", targets: ["SandboxCommand"]),
        .executable(name: "benchmarks", targets: ["Benchmarks"]),
        .executable(name: "conformance", targets: ["Conformance"]),
        .executable(name: "fuzz", targets: ["Fuzz"]),
    ],
    // Exact, so that a release can be built again; but apps with CarillonClient bring their own NIO.
    dependencies: [
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-nio-http2", exact: "1.46.0"),
        .package(url: "https://github.com/apple/swift-nio-extras", exact: "1.35.2"),
        .package(url: "https://github.com/apple/swift-http-types", exact: "1.8.0"),
        .package(url: "https://github.com/apple/swift-crypto", exact: "4.5.2"),
        .package(url: "https://github.com/apple/swift-distributed-tracing.git", exact: "1.7.3"),
        .package(url: "https://github.com/apple/swift-collections", exact: "1.6.0"),
        .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", exact: "2.13.0"),
        .package(url: "https://github.com/apple/swift-argument-parser", exact: "1.8.2"),
        // Without its default traits: nothing here uses swift-configuration or forms.
        .package(url: "https://github.com/hummingbird-project/hummingbird", exact: "2.28.1", traits: []),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", exact: "2.13.0"),
        .package(url: "https://github.com/jpsim/Yams", exact: "6.2.2"),
        .package(url: "https://github.com/hummingbird-project/swift-mustache", exact: "2.1.1"),
    ],
    targets: [
        // C libraries, each imported by Clients alone.
        library("CHiredis", "libhiredis-dev"),
        library("CLibpq", "libpq-dev"),
        library("CCurl", "libcurl4-openssl-dev"),
        library("COpenSSL", "libssl-dev"),
        library("CLinux", nil),
        library("CZlib", "zlib1g-dev"),

        // Shared, the lowest first.
        room("Core", in: "Sources/Shared/Core", [crypto, deque, product("Mustache", "swift-mustache"), yams]),
        room(
            "Clients", in: "Sources/Shared/Clients",
            ["CCurl", "CHiredis", "CLibpq", "CLinux", "COpenSSL", "CZlib", "Core", deque, nioSSL] + nio),
        room(
            "Storage", in: "Sources/Shared/Storage", ["Clients", "Core", crypto, logging],
            embedding: ["Stores/Migrations", "Streams/Scripts"]),
        room(
            "Operations", in: "Sources/Shared/Operations",
            ["Clients", "Core", "Storage", argumentParser, unixSignals, yams] + nio + service,
            embedding: ["Schema/catalog.schema.json"]),

        // Both programs under one name.
        program("CarillonCommand", in: "Sources/Shared/Command", []),

        // Dispatcher: jobs out.
        room("Providers", in: "Sources/Dispatcher/Providers", ["Clients", "Core", crypto, cryptoExtras, logging]),
        room(
            "Pipeline", in: "Sources/Dispatcher/Pipeline",
            ["Clients", "Core", "Operations", "Providers", "Storage", deque, logging] + service),
        program(
            "DispatcherCommand", in: "Sources/Dispatcher/Command",
            ["Clients", "Core", "Operations", "Pipeline", "Providers", "Storage", argumentParser, hummingbird] + nio
                + service),

        // Gateway: people in.
        room("Protocols", in: "Sources/Gateway/Protocols", ["Core", crypto, nioCore, nioHTTP1]),
        room(
            "Sockets", in: "Sources/Gateway/Sockets",
            [
                "Core", "Protocols", crypto, deque, hummingbirdCore, nioHTTP1, nioHTTPTypes,
                product("NIOHTTPTypesHTTP1", "swift-nio-extras"),
            ] + nio + service),
        room(
            "HTTP", in: "Sources/Gateway/HTTP",
            [
                "Clients", "Core", "Operations", "Protocols", "Sockets", "Storage", crypto, cryptoExtras, httpTypes,
                hummingbird,
            ] + nio + service,
            embedding: ["Web/Resources"]),
        program(
            "GatewayCommand", in: "Sources/Gateway/Command",
            [
                "Clients", "Core", "HTTP", "Operations", "Sockets", "Storage", argumentParser, hummingbird, nioSSL,
            ] + nio + service),

        // The client library for apps.
        room(
            "CarillonClient", in: "clients/swift/Sources/CarillonClient",
            [
                onLinux("NIOCore", "swift-nio"), onLinux("NIOHTTP1", "swift-nio"), onLinux("NIOPosix", "swift-nio"),
                onLinux("NIOSSL", "swift-nio-ssl"), onLinux("NIOWebSocket", "swift-nio"),
            ]),
        program("ClientStack", in: "clients/swift/Stack", ["CarillonClient"]),

        // Support that tests, benchmarks and the demo share.
        room("Support", in: "Tests/Support", ["Clients", "Core", "Protocols", "Storage"] + nio),
        room("Sandbox", in: "Tests/Sandbox/Server", ["Core", crypto, cryptoExtras, nioHTTP1, nioSSL] + nio + http2),
        program("SandboxCommand", in: "Tests/Sandbox/Command", ["Sandbox", argumentParser, unixSignals]),
        program(
            "Benchmarks", in: "Tests/Benchmarks",
            [
                "Clients", "Core", "Storage", "Support", argumentParser, crypto, cryptoExtras, nioHTTP1,
            ] + nio,
            excluding: ["Rest/rest.lua", "Yardsticks"]),
        program(
            "Conformance", in: "Tests/Conformance",
            [
                "Core", "Protocols", "Sockets", argumentParser, hummingbird, hummingbirdCore, nioHTTP1, unixSignals,
            ] + nio + service),
        program(
            "Fuzz", in: "Tests/Fuzz",
            [
                "Clients", "Core", "HTTP", "Protocols", "Sockets", "Support", argumentParser, crypto, cryptoExtras,
                nioEmbedded,
            ] + nio,
            excluding: ["Corpus"]),

        .testTarget(name: "CarillonClientTests", dependencies: ["CarillonClient"], path: "clients/swift/Tests"),
        tests("Core", ["Core", "Support", crypto]),
        tests("Clients", ["Clients", "Core", "Sandbox", "Support", crypto] + nio),
        tests("Storage", ["Clients", "Core", "Storage", "Support"]),
        tests("Operations", ["Clients", "Core", "Operations", "Support", logging, nioCore] + service),
        tests(
            "Gateway",
            [
                "Clients", "Core", "HTTP", "Operations", "Protocols", "Sockets", "Storage", "Support", crypto,
                cryptoExtras, httpTypes, hummingbird, hummingbirdCore, nioEmbedded, nioHTTP1, nioHTTPTypes,
                serviceLifecycle,
            ] + nio),
        tests(
            "Dispatcher",
            [
                "Clients", "Core", "Operations", "Pipeline", "Providers", "Sandbox", "Storage", "Support", crypto,
                cryptoExtras, nioSSL, serviceLifecycle,
            ] + nio + http2),
        tests("House", ["Core", "Operations", "Support", yams]),
        tests(
            "EndToEnd",
            [
                "Clients", "Core", "HTTP", "Operations", "Pipeline", "Providers", "Sandbox", "Storage", "Support",
                crypto, nioHTTP1, nioSSL, serviceLifecycle,
            ] + nio),
    ],
    swiftLanguageModes: [.v6]
)

// `deploy/up` and the image build only the programs that run.
if Context.environment["CARILLON_BUILD"] == "programs" {
    let programs: Set = ["carillon", "gateway", "dispatcher", "provider-sandbox"]
    package.products.removeAll { !programs.contains($0.name) }
    let checks: Set = ["Support", "Benchmarks", "Conformance", "Fuzz", "CarillonClient", "ClientStack"]
    package.targets.removeAll { $0.type == .test || checks.contains($0.name) }
}

// Swift 6 mode with complete checking in every target, and no warnings.
for target in package.targets where target.type != .system {
    target.swiftSettings = [
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
        .treatAllWarnings(as: .error),
    ]
}
