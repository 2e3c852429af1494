// swift-tools-version: 6.2
// Carillon · Package.swift
// SPDX-License-Identifier: Apache-2.0

import PackageDescription

let nio = "swift-nio"

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
        .systemLibrary(name: "CLinux", path: "Sources/Shared/CLinux"),
        .target(name: "Threads", dependencies: ["CLinux"], path: "Sources/Shared/Threads"),
        .target(name: "Backoff", path: "Sources/Shared/Backoff"),
        .target(
            name: "Queues",
            dependencies: ["Model", .product(name: "DequeModule", package: "swift-collections")],
            path: "Sources/Shared/Queues"
        ),
        .target(name: "JSON", path: "Sources/Shared/JSON"),
        .target(
            name: "Model",
            dependencies: ["JSON", .product(name: "Crypto", package: "swift-crypto")],
            path: "Sources/Shared/Model"
        ),
        .target(name: "Zones", dependencies: ["Model"], path: "Sources/Shared/Zones"),
        .target(name: "Schedules", dependencies: ["Model", "Zones"], path: "Sources/Shared/Schedules"),
        .target(
            name: "Telemetry",
            dependencies: [
                .product(name: "Logging", package: "swift-log"),
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Metrics", package: "swift-metrics"),
            ],
            path: "Sources/Shared/Telemetry"
        ),
        .target(
            name: "Transfer",
            dependencies: ["CCurl", "Threads", .product(name: "Logging", package: "swift-log")],
            path: "Sources/Shared/Transfer"
        ),
        .target(
            name: "Redis",
            dependencies: [
                "Backoff", "CHiredis",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOPosix", package: nio),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            path: "Sources/Shared/Redis"
        ),
        .target(
            name: "Settings",
            dependencies: [
                "Redis", "Telemetry",
                .product(name: "Configuration", package: "swift-configuration"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SystemPackage", package: "swift-system"),
            ],
            path: "Sources/Shared/Settings"
        ),
        .target(
            name: "Postgres",
            dependencies: [
                "Backoff", "CLibpq", "Threads",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
            ],
            path: "Sources/Shared/Postgres"
        ),
        .target(name: "Decision", dependencies: ["Model", "Zones"], path: "Sources/Shared/Decision"),
        .target(
            name: "Templates",
            dependencies: ["JSON", "Model", .product(name: "Mustache", package: "swift-mustache")],
            path: "Sources/Shared/Templates"
        ),
        .target(
            name: "Catalog",
            dependencies: [
                "Model", "Templates",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "Yams", package: "Yams"),
            ],
            path: "Sources/Shared/Catalog"
        ),
        .target(name: "Shapes", dependencies: ["JSON", "Model"], path: "Sources/Shared/Shapes"),
        .target(
            name: "Streams",
            dependencies: [
                "Model", "Redis",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "NIOCore", package: nio),
            ],
            path: "Sources/Shared/Streams",
            resources: [.embedInCode("Scripts")]
        ),
        .target(
            name: "Reload",
            dependencies: [
                "Catalog", "Redis", "Streams",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ],
            path: "Sources/Shared/Reload"
        ),
        .target(
            name: "Stores",
            dependencies: ["JSON", "Model", "Postgres", .product(name: "Logging", package: "swift-log")],
            path: "Sources/Shared/Stores",
            resources: [.embedInCode("Migrations")]
        ),

        // Dispatcher: jobs out, in the order the job travels.
        .target(
            name: "Providers",
            dependencies: [
                "JSON", "Model",
                .product(name: "JWTKit", package: "jwt-kit"),
            ],
            path: "Sources/Dispatcher/Providers"
        ),
        .target(
            name: "Pipeline",
            dependencies: [
                "Backoff", "Catalog", "Decision", "JSON", "Model", "Postgres", "Providers", "Queues", "Redis",
                "Schedules", "Shapes", "Stores", "Streams", "Templates", "Transfer", "Zones",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            path: "Sources/Dispatcher/Pipeline"
        ),
        .executableTarget(
            name: "DispatcherCommand",
            dependencies: [
                "Catalog", "JSON", "Model", "Pipeline", "Postgres", "Providers", "Redis", "Reload", "Settings",
                "Stores", "Streams", "Telemetry", "Transfer", "Zones",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOPosix", package: nio),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            path: "Sources/Dispatcher/Command"
        ),

        // Gateway: people in.
        .target(name: "EventStream", path: "Sources/Gateway/Protocols/EventStream"),
        .target(
            name: "SignalR",
            dependencies: ["EventStream", "JSON"],
            path: "Sources/Gateway/Protocols/SignalR"
        ),
        .target(
            name: "WebSocket",
            dependencies: [
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHTTP1", package: nio),
            ],
            path: "Sources/Gateway/Protocols/WebSocket"
        ),
        .target(
            name: "Transports",
            dependencies: [
                "JSON", "WebSocket",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHTTP1", package: nio),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
                .product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras"),
            ],
            path: "Sources/Gateway/Transports"
        ),
        .target(
            name: "SignalRTransport",
            dependencies: [
                "JSON", "SignalR", "Transports", "WebSocket",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHTTP1", package: nio),
            ],
            path: "Sources/Gateway/HubTransports/SignalR"
        ),
        .target(
            name: "Sockets",
            dependencies: [
                "Backoff", "EventStream", "JSON", "Model", "Queues", "SignalR", "SignalRTransport", "SocketIO",
                "SocketIOTransport", "Transports", "WebSocket",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHTTP1", package: nio),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            path: "Sources/Gateway/Sockets"
        ),
        .target(name: "SocketIO", dependencies: ["JSON"], path: "Sources/Gateway/Protocols/SocketIO"),
        .target(
            name: "SocketIOTransport",
            dependencies: [
                "JSON", "SocketIO", "Transports", "WebSocket",
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHTTP1", package: nio),
            ],
            path: "Sources/Gateway/SocketIOTransport"
        ),
        .target(
            name: "Services",
            dependencies: [
                "Backoff", "Catalog", "JSON", "Model", "Postgres", "Redis", "Shapes", "Sockets", "Stores", "Streams",
                "Transfer",
                .product(name: "_CryptoExtras", package: "swift-crypto"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOCore", package: nio),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            path: "Sources/Gateway/Services"
        ),
        .target(
            name: "API",
            dependencies: [
                "Catalog", "Decision", "JSON", "Model", "Postgres", "Redis", "Schedules", "Services", "Shapes",
                "Stores",
                "Streams", "Telemetry", "Templates", "Zones",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
            ],
            path: "Sources/Gateway/API",
            resources: [.embedInCode("OpenAPI")]
        ),
        .target(
            name: "Compatibility",
            dependencies: [
                "API", "Catalog", "JSON", "Model", "Services", "Shapes", "Stores", "Streams",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOCore", package: nio),
            ],
            path: "Sources/Gateway/Compatibility"
        ),
        .executableTarget(
            name: "GatewayCommand",
            dependencies: [
                "API", "Catalog", "Compatibility", "Model", "Postgres", "Redis", "Reload", "Services", "Settings",
                "SocketIOTransport", "Sockets", "Stores", "Streams", "Telemetry", "Transfer", "Transports", "Zones",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOPosix", package: nio),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            path: "Sources/Gateway/Command"
        ),

        // Tests: their support, then a target for each library.
        .target(
            name: "ProviderSandbox",
            dependencies: [
                .product(name: "_CryptoExtras", package: "swift-crypto"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOHTTP1", package: nio),
                .product(name: "NIOHTTP2", package: "swift-nio-http2"),
                .product(name: "NIOPosix", package: nio),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            path: "Tests/Support/ProviderSandbox"
        ),
        .executableTarget(
            name: "ProviderSandboxCommand",
            dependencies: [
                "ProviderSandbox",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ],
            path: "Tests/Support/ProviderSandboxCommand"
        ),
        .target(
            name: "Fixtures",
            dependencies: [
                "Postgres", "Redis", "Stores",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOPosix", package: nio),
            ],
            path: "Tests/Support/Fixtures"
        ),
        .executableTarget(
            name: "Benchmarks",
            dependencies: [
                "Fixtures", "Model", "Postgres", "Redis", "Stores", "Streams", "Transfer",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOPosix", package: nio),
            ],
            path: "Tests/Benchmarks",
            exclude: ["Rest/rest.lua", "Yardsticks"]
        ),
        .executableTarget(
            name: "Conformance",
            dependencies: [
                "JSON", "SignalR", "SignalRTransport", "SocketIO", "SocketIOTransport", "Transports", "WebSocket",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHTTP1", package: nio),
                .product(name: "NIOPosix", package: nio),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ],
            path: "Tests/Conformance"
        ),
        .executableTarget(
            name: "Fuzz",
            dependencies: [
                "Randomness",
                "Model", "Redis", "Services", "SignalR", "SocketIO", "Transports", "WebSocket",
                .product(name: "_CryptoExtras", package: "swift-crypto"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOEmbedded", package: nio),
            ],
            path: "Tests/Fuzz",
            exclude: ["Corpus"]
        ),
        .target(name: "Randomness", path: "Tests/Support/Randomness"),
        .testTarget(name: "ThreadsTests", dependencies: ["Fixtures", "Threads"], path: "Tests/Threads"),
        .testTarget(name: "BackoffTests", dependencies: ["Backoff"], path: "Tests/Backoff"),
        .testTarget(name: "QueuesTests", dependencies: ["Model", "Queues"], path: "Tests/Queues"),
        .testTarget(name: "JSONTests", dependencies: ["JSON"], path: "Tests/JSON"),
        .testTarget(name: "ModelTests", dependencies: ["JSON", "Model"], path: "Tests/Model"),
        .testTarget(name: "ZonesTests", dependencies: ["Model", "Randomness", "Zones"], path: "Tests/Zones"),
        .testTarget(name: "SchedulesTests", dependencies: ["Model", "Schedules", "Zones"], path: "Tests/Schedules"),
        .testTarget(
            name: "TemplatesTests", dependencies: ["JSON", "Model", "Templates"], path: "Tests/Templates"),
        .testTarget(
            name: "CatalogTests", dependencies: ["Catalog", "JSON", "Model", "Templates"], path: "Tests/Catalog"),
        .testTarget(
            name: "SettingsTests",
            dependencies: ["Redis", "Settings", "Telemetry", .product(name: "Logging", package: "swift-log")],
            path: "Tests/Settings"
        ),
        .testTarget(
            name: "TelemetryTests",
            dependencies: ["Telemetry", .product(name: "CoreMetrics", package: "swift-metrics")],
            path: "Tests/Telemetry"
        ),
        .testTarget(name: "ShapesTests", dependencies: ["JSON", "Model", "Shapes"], path: "Tests/Shapes"),
        .testTarget(
            name: "RedisTests",
            dependencies: ["Fixtures", "Redis", .product(name: "NIOPosix", package: nio)],
            path: "Tests/Redis"
        ),
        .testTarget(name: "PostgresTests", dependencies: ["Fixtures", "Postgres"], path: "Tests/Postgres"),
        .testTarget(
            name: "TransferTests",
            dependencies: [
                "ProviderSandbox", "Transfer",
                .product(name: "Crypto", package: "swift-crypto"),
            ], path: "Tests/Transfer"),
        .testTarget(
            name: "StoresTests",
            dependencies: ["Fixtures", "JSON", "Model", "Postgres", "Stores"],
            path: "Tests/Stores"
        ),
        .testTarget(
            name: "StreamsTests", dependencies: ["Fixtures", "Model", "Redis", "Streams"], path: "Tests/Streams"),
        .testTarget(
            name: "DecisionTests", dependencies: ["Decision", "Model", "Randomness", "Zones"], path: "Tests/Decision"),
        .testTarget(
            name: "ProvidersTests",
            dependencies: [
                "JSON", "Model", "Providers",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "_CryptoExtras", package: "swift-crypto"),
            ],
            path: "Tests/Providers"
        ),
        .testTarget(name: "EventStreamTests", dependencies: ["EventStream"], path: "Tests/EventStream"),
        .testTarget(
            name: "SignalRTransportTests",
            dependencies: [
                "SignalR", "SignalRTransport", "Transports", .product(name: "NIOEmbedded", package: nio),
            ],
            path: "Tests/SignalRTransport"
        ),
        .testTarget(name: "SignalRTests", dependencies: ["JSON", "Randomness", "SignalR"], path: "Tests/SignalR"),
        .testTarget(
            name: "WebSocketTests",
            dependencies: ["WebSocket", .product(name: "NIOCore", package: nio)],
            path: "Tests/WebSocket"
        ),
        .testTarget(
            name: "TransportsTests",
            dependencies: [
                "Transports", "WebSocket",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOEmbedded", package: nio),
                .product(name: "NIOHTTP1", package: nio),
            ],
            path: "Tests/Transports"
        ),
        .testTarget(
            name: "SocketsTests",
            dependencies: [
                "JSON", "Model", "SignalR", "SocketIO", "Sockets", "WebSocket",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOEmbedded", package: nio),
            ],
            path: "Tests/Sockets"
        ),
        .testTarget(
            name: "SocketIOTransportTests",
            dependencies: [
                "SocketIO", "SocketIOTransport", "Transports", .product(name: "NIOHTTP1", package: nio),
            ],
            path: "Tests/SocketIOTransport"
        ),
        .testTarget(name: "SocketIOTests", dependencies: ["JSON", "Randomness", "SocketIO"], path: "Tests/SocketIO"),
        .testTarget(
            name: "ProviderSandboxTests",
            dependencies: [
                "ProviderSandbox",
                .product(name: "_CryptoExtras", package: "swift-crypto"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOHTTP2", package: "swift-nio-http2"),
                .product(name: "NIOPosix", package: nio),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            path: "Tests/ProviderSandbox"
        ),
        .testTarget(
            name: "PipelineTests",
            dependencies: ["Backoff", "Model", "Pipeline"],
            path: "Tests/Pipeline"
        ),
        .testTarget(
            name: "ServicesTests",
            dependencies: [
                "Backoff", "Fixtures", "JSON", "Model", "Postgres", "Redis", "Services", "Sockets", "Stores", "Streams",
                "Transfer",
                .product(name: "_CryptoExtras", package: "swift-crypto"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHTTP1", package: nio),
                .product(name: "NIOPosix", package: nio),
            ],
            path: "Tests/Services"
        ),
        .testTarget(
            name: "CompatibilityTests",
            dependencies: [
                "API", "Catalog", "Compatibility", "JSON", "Model", "Stores",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            path: "Tests/Compatibility"
        ),
        .testTarget(
            name: "APITests",
            dependencies: [
                "API", "Catalog", "JSON", "Model", "Postgres", "Redis", "Services", "Stores", "Streams", "Telemetry",
                "Zones",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOPosix", package: nio),
            ],
            path: "Tests/API"
        ),
        .testTarget(name: "HouseTests", path: "Tests/House"),
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "Fixtures", "JSON", "Model", "Postgres", "ProviderSandbox", "Queues", "Redis", "Services", "Streams",
                "Transfer",
                .product(name: "_CryptoExtras", package: "swift-crypto"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: nio),
                .product(name: "NIOHTTP1", package: nio),
                .product(name: "NIOPosix", package: nio),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
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
