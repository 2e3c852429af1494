// swift-tools-version: 6.2
// Carillon · Package.swift
// SPDX-License-Identifier: Apache-2.0

import PackageDescription

// What targets take from other packages.
let argumentParser = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")
let configuration = Target.Dependency.product(name: "Configuration", package: "swift-configuration")
let coreMetrics = Target.Dependency.product(name: "CoreMetrics", package: "swift-metrics")
let crypto = Target.Dependency.product(name: "Crypto", package: "swift-crypto")
let cryptoExtras = Target.Dependency.product(name: "_CryptoExtras", package: "swift-crypto")
let dequeModule = Target.Dependency.product(name: "DequeModule", package: "swift-collections")
let httpTypes = Target.Dependency.product(name: "HTTPTypes", package: "swift-http-types")
let hummingbird = Target.Dependency.product(name: "Hummingbird", package: "hummingbird")
let hummingbirdCore = Target.Dependency.product(name: "HummingbirdCore", package: "hummingbird")
let jwtKit = Target.Dependency.product(name: "JWTKit", package: "jwt-kit")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let metrics = Target.Dependency.product(name: "Metrics", package: "swift-metrics")
let mustache = Target.Dependency.product(name: "Mustache", package: "swift-mustache")
let nIOHTTP1 = Target.Dependency.product(name: "NIOHTTP1", package: "swift-nio")
let nIOHTTP2 = Target.Dependency.product(name: "NIOHTTP2", package: "swift-nio-http2")
let nioCore = Target.Dependency.product(name: "NIOCore", package: "swift-nio")
let nioEmbedded = Target.Dependency.product(name: "NIOEmbedded", package: "swift-nio")
let nioPosix = Target.Dependency.product(name: "NIOPosix", package: "swift-nio")
let niohpack = Target.Dependency.product(name: "NIOHPACK", package: "swift-nio-http2")
let niohttpTypes = Target.Dependency.product(name: "NIOHTTPTypes", package: "swift-nio-extras")
let niohttpTypesHTTP1 = Target.Dependency.product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras")
let niossl = Target.Dependency.product(name: "NIOSSL", package: "swift-nio-ssl")
let serviceLifecycle = Target.Dependency.product(name: "ServiceLifecycle", package: "swift-service-lifecycle")
let systemPackage = Target.Dependency.product(name: "SystemPackage", package: "swift-system")
let tracing = Target.Dependency.product(name: "Tracing", package: "swift-distributed-tracing")
let unixSignals = Target.Dependency.product(name: "UnixSignals", package: "swift-service-lifecycle")
let yams = Target.Dependency.product(name: "Yams", package: "Yams")

let package = Package(
    name: "carillon",
    products: [
        .executable(name: "gateway", targets: ["GatewayCommand"]),
        .executable(name: "dispatcher", targets: ["DispatcherCommand"]),
        .executable(name: "provider-sandbox", targets: ["ProviderSandboxCommand"]),
        .executable(name: "benchmarks", targets: ["Benchmarks"]),
        .executable(name: "conformance", targets: ["Conformance"]),
        .executable(name: "fuzz", targets: ["Fuzz"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-nio-http2", from: "1.46.0"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-crypto", "3.12.3"..<"5.0.0"),
        .package(url: "https://github.com/apple/swift-distributed-tracing.git", from: "1.7.3"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-configuration", from: "1.4.0"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/vapor/jwt-kit", from: "5.7.1"),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.2"),
        .package(url: "https://github.com/hummingbird-project/swift-mustache", from: "2.1.1"),
    ],
    targets: [
        // Shared: small libraries, the lowest first.
        .systemLibrary(
            name: "CHiredis",
            path: "Sources/Shared/CHiredis",
            providers: [.apt(["libhiredis-dev"])]
        ),
        .systemLibrary(
            name: "CLibpq",
            path: "Sources/Shared/CLibpq",
            pkgConfig: "libpq",
            providers: [.apt(["libpq-dev"])]
        ),
        .systemLibrary(
            name: "CCurl",
            path: "Sources/Shared/CCurl",
            providers: [.apt(["libcurl4-openssl-dev"])]
        ),
        .systemLibrary(
            name: "COpenSSL",
            path: "Sources/Shared/COpenSSL",
            providers: [.apt(["libssl-dev"])]
        ),
        .systemLibrary(name: "CLinux", path: "Sources/Shared/CLinux"),
        .target(name: "Threads", dependencies: ["CLinux"], path: "Sources/Shared/Threads"),
        .target(name: "Backoff", path: "Sources/Shared/Backoff"),
        .target(
            name: "Queues",
            dependencies: ["Model", dequeModule],
            path: "Sources/Shared/Queues"
        ),
        .target(name: "JSON", path: "Sources/Shared/JSON"),
        .target(
            name: "Model",
            dependencies: ["JSON", crypto],
            path: "Sources/Shared/Model"
        ),
        .target(name: "Zones", dependencies: ["Model"], path: "Sources/Shared/Zones"),
        .target(name: "Schedules", dependencies: ["Model", "Zones"], path: "Sources/Shared/Schedules"),
        .target(
            name: "WebPushEncryption",
            dependencies: ["COpenSSL"],
            path: "Sources/Shared/WebPushEncryption"
        ),
        .target(
            name: "Telemetry",
            dependencies: [logging, coreMetrics, metrics],
            path: "Sources/Shared/Telemetry"
        ),
        .target(
            name: "Transfer",
            dependencies: ["CCurl", "Threads", logging],
            path: "Sources/Shared/Transfer"
        ),
        .target(
            name: "Redis",
            dependencies: ["Backoff", "CHiredis", dequeModule, logging, nioCore, nioPosix, niossl],
            path: "Sources/Shared/Redis"
        ),
        .target(
            name: "Settings",
            dependencies: ["Model", "Redis", "Telemetry", configuration, logging, systemPackage, yams],
            path: "Sources/Shared/Settings"
        ),
        .target(
            name: "Postgres",
            dependencies: ["Backoff", "CLibpq", "Threads", dequeModule, logging],
            path: "Sources/Shared/Postgres"
        ),
        .target(name: "Decision", dependencies: ["Model", "Zones"], path: "Sources/Shared/Decision"),
        .target(
            name: "Templates",
            dependencies: ["JSON", "Model", mustache],
            path: "Sources/Shared/Templates"
        ),
        .target(
            name: "Catalog",
            dependencies: ["Model", "Templates", coreMetrics, crypto, metrics, yams],
            path: "Sources/Shared/Catalog"
        ),
        .target(name: "Shapes", dependencies: ["JSON", "Model"], path: "Sources/Shared/Shapes"),
        .target(
            name: "Streams",
            dependencies: ["Model", "Redis", crypto, nioCore],
            path: "Sources/Shared/Streams",
            resources: [.embedInCode("Scripts")]
        ),
        .target(
            name: "Reload",
            dependencies: ["Catalog", "Redis", "Streams", logging, nioCore, serviceLifecycle, unixSignals],
            path: "Sources/Shared/Reload"
        ),
        .target(
            name: "Stores",
            dependencies: ["JSON", "Model", "Postgres", logging],
            path: "Sources/Shared/Stores",
            resources: [.embedInCode("Migrations")]
        ),

        .target(
            name: "Spans",
            dependencies: ["JSON", "Model", "Transfer", coreMetrics, logging, serviceLifecycle, tracing],
            path: "Sources/Shared/Spans"
        ),
        .target(
            name: "Explanation",
            dependencies: [
                "Catalog", "Decision", "JSON", "Model", "Schedules", "Shapes", "Stores", "Streams", "Templates",
                "Zones",
            ],
            path: "Sources/Shared/Explanation"
        ),
        .target(
            name: "Console",
            dependencies: [
                "Catalog", "JSON", "Model", "Postgres", "Redis", "Settings", "Stores", "Telemetry", argumentParser,
                logging, nioPosix,
            ],
            path: "Sources/Shared/Console"
        ),
        .target(
            name: "Doctor",
            dependencies: [
                "Catalog", "Console", "JSON", "Model", "Postgres", "Redis", "Stores", "Telemetry", "Zones",
                argumentParser,
            ],
            path: "Sources/Shared/Doctor"
        ),

        // Dispatcher: jobs out, in the order the job travels.
        .target(
            name: "Providers",
            dependencies: ["JSON", "Model", "Transfer", "WebPushEncryption", crypto, jwtKit, logging],
            path: "Sources/Dispatcher/Providers"
        ),
        .target(
            name: "Pipeline",
            dependencies: [
                "Backoff", "Catalog", "Decision", "JSON", "Model", "Postgres", "Providers", "Queues", "Redis",
                "Schedules", "Shapes", "Spans", "Stores", "Streams", "Templates", "Transfer", "Zones", crypto, logging,
                coreMetrics, metrics, serviceLifecycle, tracing,
            ],
            path: "Sources/Dispatcher/Pipeline"
        ),
        .executableTarget(
            name: "DispatcherCommand",
            dependencies: [
                "Catalog", "Console", "Decision", "Doctor", "Explanation", "JSON", "Model", "Pipeline", "Postgres",
                "Providers", "Redis", "Reload", "Settings", "Spans", "Stores", "Streams", "Telemetry", "Transfer",
                "Zones", argumentParser, coreMetrics, hummingbird, logging, metrics, nioCore, nioPosix,
                serviceLifecycle, tracing,
            ],
            path: "Sources/Dispatcher/Command"
        ),

        // Gateway: people in.
        .target(name: "EventStream", path: "Sources/Gateway/Protocols/EventStream"),
        .target(name: "Query", path: "Sources/Gateway/Query"),
        .target(
            name: "SignalR",
            dependencies: ["EventStream", "JSON", "Query"],
            path: "Sources/Gateway/Protocols/SignalR"
        ),
        .target(
            name: "WebSocket",
            dependencies: [crypto, nioCore, nIOHTTP1],
            path: "Sources/Gateway/Protocols/WebSocket"
        ),
        .target(
            name: "Transports",
            dependencies: [
                "JSON", "WebSocket", coreMetrics, hummingbirdCore, logging, metrics, nioCore, nIOHTTP1, niohttpTypes,
                niohttpTypesHTTP1,
            ],
            path: "Sources/Gateway/Transports"
        ),
        .target(
            name: "SignalRTransport",
            dependencies: [
                "JSON", "Query", "SignalR", "Transports", "WebSocket", dequeModule, coreMetrics, metrics, nioCore,
                nIOHTTP1,
            ],
            path: "Sources/Gateway/HubTransports/SignalR"
        ),
        .target(
            name: "Sockets",
            dependencies: [
                "Backoff", "EventStream", "JSON", "Model", "Query", "Queues", "SignalR", "SignalRTransport", "SocketIO",
                "SocketIOTransport", "Transports", "WebSocket", coreMetrics, crypto, dequeModule, logging, metrics,
                nioCore, nIOHTTP1, serviceLifecycle,
            ],
            path: "Sources/Gateway/Sockets"
        ),
        .target(name: "SocketIO", dependencies: ["JSON", "Query"], path: "Sources/Gateway/Protocols/SocketIO"),
        .target(
            name: "SocketIOTransport",
            dependencies: ["JSON", "Query", "SocketIO", "Transports", "WebSocket", nioCore, nIOHTTP1],
            path: "Sources/Gateway/SocketIOTransport"
        ),
        .target(
            name: "Services",
            dependencies: [
                "Backoff", "Catalog", "JSON", "Model", "Postgres", "Redis", "Shapes", "Sockets", "Stores", "Streams",
                "Transfer", cryptoExtras, crypto, coreMetrics, logging, metrics, nioCore, serviceLifecycle,
            ],
            path: "Sources/Gateway/Services"
        ),
        .target(
            name: "API",
            dependencies: [
                "Catalog", "Explanation", "JSON", "Model", "Postgres", "Query", "Redis", "Schedules", "Services",
                "Shapes", "Spans", "Stores", "Streams", "Telemetry", "Templates", "Zones", coreMetrics, httpTypes,
                hummingbird,
                logging, metrics, nioCore, serviceLifecycle, tracing,
            ],
            path: "Sources/Gateway/API",
            resources: [.embedInCode("OpenAPI")]
        ),
        .target(
            name: "Compatibility",
            dependencies: [
                "API", "Catalog", "JSON", "Model", "Query", "Services", "Shapes", "Stores", "Streams", httpTypes,
                hummingbird, metrics, nioCore,
            ],
            path: "Sources/Gateway/Compatibility",
            resources: [.embedInCode("OpenAPI")]
        ),
        .target(
            name: "Web",
            dependencies: [crypto, httpTypes, hummingbird, nioCore],
            path: "Sources/Gateway/Web",
            resources: [.embedInCode("Resources")]
        ),
        .executableTarget(
            name: "GatewayCommand",
            dependencies: [
                "API", "CLinux", "Catalog", "Compatibility", "Console", "Doctor", "JSON", "Model", "Postgres", "Redis",
                "Reload", "Services", "Settings", "SocketIOTransport", "Sockets", "Spans", "Stores", "Streams",
                "Telemetry", "Transfer", "Transports", "Web", "Zones", argumentParser, hummingbird, logging, metrics,
                nioCore, nioPosix, niossl, serviceLifecycle, tracing,
            ],
            path: "Sources/Gateway/Command"
        ),

        // Tests: their support, then a target for each library.
        .target(
            name: "ProviderSandbox",
            dependencies: [cryptoExtras, crypto, logging, nioCore, niohpack, nIOHTTP1, nIOHTTP2, nioPosix, niossl],
            path: "Tests/Support/ProviderSandbox"
        ),
        .executableTarget(
            name: "ProviderSandboxCommand",
            dependencies: ["ProviderSandbox", argumentParser, unixSignals],
            path: "Tests/Support/ProviderSandboxCommand"
        ),
        .target(
            name: "Fixtures",
            dependencies: ["Postgres", "Redis", "Stores", logging, nioCore, nioPosix],
            path: "Tests/Support/Fixtures"
        ),
        .target(
            name: "Browser",
            dependencies: ["Fixtures", "JSON", "Transfer"],
            path: "Tests/Support/Browser"
        ),
        .executableTarget(
            name: "Benchmarks",
            dependencies: [
                "Decision", "Fixtures", "Model", "Postgres", "Redis", "Stores", "Streams", "Transfer",
                "WebPushEncryption", "Zones",
                argumentParser, crypto, httpTypes, hummingbird, logging, nioCore, nioPosix,
            ],
            path: "Tests/Benchmarks",
            exclude: ["Rest/rest.lua", "Yardsticks"]
        ),
        .executableTarget(
            name: "Conformance",
            dependencies: [
                "JSON", "SignalR", "SignalRTransport", "SocketIO", "SocketIOTransport", "Transports", "WebSocket",
                argumentParser, hummingbird, hummingbirdCore, logging, nioCore, nIOHTTP1, nioPosix, serviceLifecycle,
                unixSignals,
            ],
            path: "Tests/Conformance"
        ),
        .executableTarget(
            name: "Fuzz",
            dependencies: [
                "Randomness", "Model", "Query", "Redis", "Services", "SignalR", "SocketIO", "Transports", "WebSocket",
                cryptoExtras, argumentParser, crypto, logging, nioCore, nioEmbedded,
            ],
            path: "Tests/Fuzz",
            exclude: ["Corpus"]
        ),
        .target(name: "Randomness", path: "Tests/Support/Randomness"),
        .testTarget(name: "ThreadsTests", dependencies: ["Fixtures", "Threads"], path: "Tests/Threads"),
        .testTarget(name: "BackoffTests", dependencies: ["Backoff"], path: "Tests/Backoff"),
        .testTarget(name: "QueuesTests", dependencies: ["Model", "Queues"], path: "Tests/Queues"),
        .testTarget(name: "JSONTests", dependencies: ["JSON"], path: "Tests/JSON"),
        .testTarget(name: "ModelTests", dependencies: ["JSON", "Model", crypto], path: "Tests/Model"),
        .testTarget(name: "ZonesTests", dependencies: ["Model", "Randomness", "Zones"], path: "Tests/Zones"),
        .testTarget(name: "SchedulesTests", dependencies: ["Model", "Schedules", "Zones"], path: "Tests/Schedules"),
        .testTarget(
            name: "TemplatesTests", dependencies: ["JSON", "Model", "Templates"], path: "Tests/Templates"),
        .testTarget(
            name: "CatalogTests", dependencies: ["Catalog", "JSON", "Model", "Templates"], path: "Tests/Catalog"),
        .testTarget(
            name: "SettingsTests",
            dependencies: ["Redis", "Settings", "Telemetry", logging],
            path: "Tests/Settings"
        ),
        .testTarget(
            name: "TelemetryTests",
            dependencies: ["Telemetry", coreMetrics],
            path: "Tests/Telemetry"
        ),
        .testTarget(
            name: "SpansTests", dependencies: ["JSON", "Model", "Spans", tracing], path: "Tests/Spans"),
        .testTarget(name: "ConsoleTests", dependencies: ["Console"], path: "Tests/Console"),
        .testTarget(name: "DoctorTests", dependencies: ["Console", "Doctor", "Model"], path: "Tests/Doctor"),
        .testTarget(name: "ShapesTests", dependencies: ["JSON", "Model", "Shapes"], path: "Tests/Shapes"),
        .testTarget(
            name: "RedisTests",
            dependencies: ["Fixtures", "Redis", nioPosix],
            path: "Tests/Redis"
        ),
        .testTarget(
            name: "PostgresTests", dependencies: ["Fixtures", "Postgres", "Threads"], path: "Tests/Postgres"),
        .testTarget(
            name: "TransferTests",
            dependencies: ["Fixtures", "ProviderSandbox", "Transfer", crypto], path: "Tests/Transfer"),
        .testTarget(
            name: "StoresTests",
            dependencies: ["Fixtures", "JSON", "Model", "Postgres", "Randomness", "Stores"],
            path: "Tests/Stores"
        ),
        .testTarget(
            name: "StreamsTests", dependencies: ["Fixtures", "Model", "Redis", "Streams"], path: "Tests/Streams"),
        .testTarget(
            name: "DecisionTests", dependencies: ["Decision", "Model", "Randomness", "Zones"], path: "Tests/Decision"),
        .testTarget(
            name: "ProvidersTests",
            dependencies: [
                "Fixtures", "JSON", "Model", "Providers", "ProviderSandbox", "Transfer", crypto, cryptoExtras, logging,
            ],
            path: "Tests/Providers"
        ),
        .testTarget(
            name: "WebPushEncryptionTests",
            dependencies: ["Model", "ProviderSandbox", "WebPushEncryption", crypto],
            path: "Tests/WebPushEncryption"
        ),
        .testTarget(name: "EventStreamTests", dependencies: ["EventStream"], path: "Tests/EventStream"),
        .testTarget(
            name: "SignalRTransportTests",
            dependencies: ["SignalR", "SignalRTransport", "Transports", nioCore, nioEmbedded],
            path: "Tests/SignalRTransport"
        ),
        .testTarget(name: "QueryTests", dependencies: ["Query"], path: "Tests/Query"),
        .testTarget(
            name: "SignalRTests", dependencies: ["JSON", "Query", "Randomness", "SignalR"], path: "Tests/SignalR"),
        .testTarget(
            name: "WebSocketTests",
            dependencies: ["WebSocket", nioCore],
            path: "Tests/WebSocket"
        ),
        .testTarget(
            name: "TransportsTests",
            dependencies: [
                "Fixtures", "Transports", "WebSocket", httpTypes, hummingbirdCore, logging, nioCore, nioEmbedded,
                nIOHTTP1, nioPosix,
            ],
            path: "Tests/Transports"
        ),
        .testTarget(
            name: "SocketsTests",
            dependencies: [
                "Fixtures", "JSON", "Model", "Postgres", "Redis", "Services", "SignalR", "SocketIO", "Sockets",
                "Stores",
                "Streams", "Transfer", "Transports", "WebSocket", hummingbirdCore, logging, nioCore, nioEmbedded,
                nioPosix,
            ],
            path: "Tests/Sockets"
        ),
        .testTarget(
            name: "SocketIOTransportTests",
            dependencies: [
                "SocketIO", "SocketIOTransport", "Transports", httpTypes, hummingbirdCore, logging, nioCore,
                nioEmbedded, nIOHTTP1,
            ],
            path: "Tests/SocketIOTransport"
        ),
        .testTarget(
            name: "SocketIOTests", dependencies: ["JSON", "Query", "Randomness", "SocketIO"], path: "Tests/SocketIO"),
        .testTarget(
            name: "ProviderSandboxTests",
            dependencies: ["ProviderSandbox", cryptoExtras, crypto, nioCore, niohpack, nIOHTTP2, nioPosix, niossl],
            path: "Tests/ProviderSandbox"
        ),
        .testTarget(
            name: "PipelineTests",
            dependencies: [
                "Backoff", "Catalog", "Fixtures", "Model", "Pipeline", "Postgres", "Providers", "Queues", "Redis",
                "Stores", "Streams", "Transfer", "Zones", logging,
            ],
            path: "Tests/Pipeline"
        ),
        .testTarget(
            name: "ServicesTests",
            dependencies: [
                "Backoff", "Fixtures", "JSON", "Model", "Postgres", "Redis", "Services", "Sockets", "Stores",
                "Streams", "Telemetry", "Transfer", cryptoExtras, crypto, logging, nioCore, nIOHTTP1, nioPosix,
            ],
            path: "Tests/Services"
        ),
        .testTarget(
            name: "CompatibilityTests",
            dependencies: ["API", "Catalog", "Compatibility", "JSON", "Model", "Query", "Stores", httpTypes],
            path: "Tests/Compatibility"
        ),
        .testTarget(
            name: "APITests",
            dependencies: [
                "API", "Catalog", "Compatibility", "JSON", "Model", "Postgres", "Redis", "Services", "Stores",
                "Streams", "Telemetry", "Zones", httpTypes, hummingbird, logging, nioPosix,
            ],
            path: "Tests/API"
        ),
        .testTarget(name: "HouseTests", path: "Tests/House"),
        .testTarget(
            name: "DeploymentTests",
            dependencies: ["Catalog", "Model", "Settings", "Streams", yams],
            path: "Tests/Deployment"
        ),
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "Browser", "Catalog", "Fixtures", "JSON", "Model", "Pipeline", "Postgres", "Providers",
                "ProviderSandbox", "Queues", "Redis", "Services", "Stores", "Streams", "Transfer", "Zones",
                cryptoExtras, crypto, logging, nioCore, nIOHTTP1, nioPosix, niossl, serviceLifecycle,
            ],
            path: "Tests/EndToEnd"),
    ],
    swiftLanguageModes: [.v6]
)

// One set of rules for every Swift target: Swift 6 mode with complete checking, and no warning passes.
for target in package.targets where target.type != .system {
    target.swiftSettings = [
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("InternalImportsByDefault"),
        .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
        .treatAllWarnings(as: .error),
    ]
}
